//! Labs as they stand in `/run/flannel-lab`: who made them, what runs in them, whether anybody
//! still cares.
//!
//! The test crate writes these records; this module only reads them. A lab is a directory with the
//! file `pids`: the line `owner <pid> <start time>`, then a line `<pid> <start time> <what>` for
//! every process. The start time is field 22 of `/proc/<pid>/stat`, in clock ticks since boot;
//! together with the pid it names one process for good, also after the pid was given to another.
//! The file `kept` marks a lab kept on purpose, and `directories` names directories elsewhere that
//! go with it, one a line.

pub(crate) mod clean;
mod directories;
mod mounts;
mod process;
pub(crate) mod process_time;

use std::{
    fs,
    path::{Path, PathBuf},
};

use self::process::Process;

/// The directory of all labs.
const LABS: &str = "/run/flannel-lab";

/// A lab's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lab {
    dir: PathBuf,
    kept: bool,
    record: Record,
    directories: Vec<PathBuf>,
}

/// The content of the file `pids`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Record {
    owner: Option<Process>,
    members: Vec<(Process, String)>,
}

/// The state of a lab, which decides if it may be taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Its owner lives, or it has not been written down yet who that is.
    InUse,
    /// Its owner left it on purpose.
    Kept,
    /// Its owner died.
    Dead,
}

impl Lab {
    /// The lab's directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the state of the lab.
    pub(crate) fn condition(&self) -> Condition {
        if self.record.owner.is_none_or(Process::is_alive) {
            Condition::InUse
        } else if self.kept {
            Condition::Kept
        } else {
            Condition::Dead
        }
    }

    fn read(dir: PathBuf) -> Self {
        let text = fs::read_to_string(dir.join("pids")).unwrap_or_default();
        let directories = fs::read_to_string(dir.join("directories")).unwrap_or_default();
        let directories = directories.lines().map(PathBuf::from).collect();
        Self {
            kept: dir.join("kept").exists(),
            record: Record::parse(&text),
            directories,
            dir,
        }
    }
}

impl Record {
    /// Takes the lines that are whole: the writer may have died in the middle of one.
    fn parse(text: &str) -> Self {
        let mut record = Self::default();
        for line in text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'))
        {
            if let Some(owner) = line.strip_prefix("owner ") {
                record.owner = Process::parse(owner).map(|(owner, _)| owner);
            } else if let Some((member, what)) = Process::parse(line) {
                record.members.push((member, what.to_owned()));
            }
        }
        record
    }
}

/// Every lab on this machine.
pub(crate) fn all() -> Vec<Lab> {
    let entries = fs::read_dir(LABS)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let mut labs: Vec<Lab> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .map(Lab::read)
        .collect();
    labs.sort_by(|a, b| a.dir.cmp(&b.dir));
    labs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab() -> Lab {
        Lab {
            dir: "/run/flannel-lab/x".into(),
            kept: false,
            record: Record::default(),
            directories: Vec::new(),
        }
    }

    #[test]
    fn a_record_is_read_up_to_where_its_writer_died() {
        let record =
            Record::parse("owner 10 100\n11 101 node a\n12 102 etcd --name x\nnonsense\n13 10");
        assert_eq!(record.owner, Some(Process::new(10, 100)));
        let whats: Vec<&str> = record
            .members
            .iter()
            .map(|(_, what)| what.as_str())
            .collect();
        assert_eq!(whats, ["node a", "etcd --name x"]);
        assert_eq!(record.members[0].0, Process::new(11, 101));
    }

    #[test]
    fn a_lab_without_an_owner_line_is_left_alone() {
        let lab = lab();
        assert_eq!(lab.condition(), Condition::InUse);
    }

    #[test]
    fn the_owner_decides() {
        let mut lab = lab();
        lab.record.owner = Some(Process::of_this_program());
        assert_eq!(lab.condition(), Condition::InUse);
        // The same pid with another start time: a foreign process.
        lab.record.owner = Some(Process::new(std::process::id(), 1));
        assert_eq!(lab.condition(), Condition::Dead);
        lab.kept = true;
        assert_eq!(lab.condition(), Condition::Kept);
    }
}
