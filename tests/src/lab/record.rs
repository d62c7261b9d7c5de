//! The record of a lab on disk, by which another process can end a lab whose process died.
//!
//! `/run/flannel-lab/<lab>/pids` starts with `owner <pid> <start>`; every further line is `<pid>
//! <start> <what>`. `start` is field 22 of `/proc/<pid>/stat` (clock ticks since boot): with it a
//! recycled pid is never taken for ours. The file `kept` next to it marks a lab that outlives its
//! process on purpose. `logs/` holds the output of the lab's processes. This module only writes;
//! ending dead labs is `cargo xtask clean-lab`.
//!
//! The file `directories` names, line by line, directories elsewhere that go with the lab once its
//! processes are gone: cgroups, and files too large for `/run`.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::eventually;

/// The directory of the records of all labs.
pub const ROOT: &str = "/run/flannel-lab";
/// The directory of the large files of all labs.
const LARGE_FILES: &str = "/var/tmp/flannel-lab";
const CGROUPS: &str = "/sys/fs/cgroup";
/// The number of times that the root is made again because a lab that ended took it.
const ROOTS: u32 = 1000;
/// The time in which the processes of a killed pid namespace are gone.
const LAST_PROCESSES: Duration = Duration::from_secs(10);

/// The directory of one lab.
#[derive(Debug)]
pub struct LabRecord {
    dir: PathBuf,
    name: String,
}

impl LabRecord {
    /// Makes the directory of a lab; `name` gets this process's id, and a number where that is
    /// taken.
    pub fn create(name: &str) -> Result<Self> {
        fs::create_dir_all(ROOT).with_context(|| format!("{ROOT}: the lab needs root"))?;
        let name = claim(name)?;
        let record = Self {
            dir: Path::new(ROOT).join(&name),
            name,
        };
        fs::create_dir(record.dir.join("logs")).context("logs of the lab")?;
        let owner = process::id();
        let start = start_time(owner).context("own start time")?;
        fs::write(record.pids(), format!("owner {owner} {start}\n"))
            .context("record of the lab")?;
        Ok(record)
    }

    /// The lab's full name, unique on this machine.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The lab's directory in the machine's own mount namespace.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A new file for the output of a process; a process of the same name that was started before
    /// keeps its own.
    pub fn log_file(&self, what: &str) -> Result<(PathBuf, File)> {
        let logs = self.dir.join("logs");
        for turn in 1_u32.. {
            let file = if turn == 1 {
                format!("{what}.log")
            } else {
                format!("{what}.{turn}.log")
            };
            let path = logs.join(file);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                opened => {
                    return Ok((
                        path.clone(),
                        opened.with_context(|| path.display().to_string())?,
                    ));
                }
            }
        }
        unreachable!("the numbers of log files do not run out")
    }

    /// Notes a process that lives as long as the lab may.
    pub fn add(&self, pid: u32, what: &str) -> Result<()> {
        let start = start_time(pid).with_context(|| format!("start time of {what} (pid {pid})"))?;
        let mut pids = OpenOptions::new()
            .append(true)
            .open(self.pids())
            .context("record of the lab")?;
        // One write, so that two threads never mix their lines.
        pids.write_all(format!("{pid} {start} {what}\n").as_bytes())
            .context("record of the lab")
    }

    /// Notes a directory elsewhere that goes with the lab.
    pub fn own(&self, dir: &Path) -> Result<()> {
        let mut directories = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.join("directories"))
            .context("record of the lab")?;
        directories
            .write_all(format!("{}\n", dir.display()).as_bytes())
            .context("record of the lab")
    }

    /// A new directory for files of the lab that are too large for `/run`.
    pub fn large_files(&self, name: &str) -> Result<PathBuf> {
        let dir = Path::new(LARGE_FILES).join(&self.name);
        if !dir.exists() {
            self.own(&dir)?;
        }
        let dir = dir.join(name);
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        Ok(dir)
    }

    /// Marks the lab as one that stays.
    pub fn keep(&self) -> Result<()> {
        fs::write(self.dir.join("kept"), "").context("mark of a kept lab")
    }

    /// Removes the directories; the lab's processes must have been ended. An empty [`ROOT`] goes as
    /// well.
    pub fn remove(&self) -> Result<()> {
        let owned = fs::read_to_string(self.dir.join("directories")).unwrap_or_default();
        for dir in owned.lines().map(Path::new) {
            eventually("removal of a directory of the lab", LAST_PROCESSES, || {
                remove_owned(dir).with_context(|| dir.display().to_string())
            })?;
        }
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).context("record of the lab");
            }
            _ => {}
        }
        [ROOT, LARGE_FILES]
            .iter()
            .try_for_each(|root| remove_if_empty(Path::new(root)))
    }

    fn pids(&self) -> PathBuf {
        self.dir.join("pids")
    }
}

/// Removes a directory with all below it. A cgroup has files that go with it, and no others.
fn remove_owned(dir: &Path) -> io::Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    if !dir.starts_with(CGROUPS) {
        return fs::remove_dir_all(dir);
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_owned(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

fn remove_if_empty(dir: &Path) -> Result<()> {
    match fs::remove_dir(dir) {
        Err(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound
            ) =>
        {
            Err(error).with_context(|| dir.display().to_string())
        }
        _ => Ok(()),
    }
}

fn claim(name: &str) -> Result<String> {
    let pid = process::id();
    let mut roots = 0;
    for turn in 1_u32.. {
        let name = if turn == 1 {
            format!("{name}-{pid}")
        } else {
            format!("{name}-{pid}-{turn}")
        };
        match fs::create_dir(Path::new(ROOT).join(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // Another lab that ended took the empty root with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && roots < ROOTS => {
                roots += 1;
                fs::create_dir_all(ROOT).context(ROOT)?;
            }
            made => return made.map(|()| name).context("directory of the lab"),
        }
    }
    unreachable!("the numbers of labs do not run out")
}

/// When the process started, in clock ticks since boot.
pub fn start_time(pid: u32) -> io::Result<u64> {
    stat_field(pid, 22)
}

/// A number of `/proc/<pid>/stat` by that of its field, from 4 on; see proc(5).
pub(crate) fn stat_field(pid: u32, field: usize) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the command in parentheses and may itself hold blanks and parentheses.
    let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    after
        .split_ascii_whitespace()
        .nth(field - 3)
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("/proc/{pid}/stat without a number as field {field}"),
            )
        })
}
