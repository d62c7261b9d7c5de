//! Sysctls of the host, and the record of those the agent changed.
//!
//! The record is a file in the state directory. Invariants: a change is in the file before it is
//! made; the value before is the last one that was not the agent's; what cannot be recorded is not
//! changed. With the default state directory a reboot forgets the record together with the values
//! it is about.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::file::{self, FileError};

const HEADER: &str = "# Sysctls flannel-agent changed: name, value before, value set. \
    `flannel-agent cleanup` reads this.\n";

/// The file that a damaged record becomes.
const DAMAGED: &str = "sysctls.damaged";
/// The characters of a line that a message quotes.
const EXCERPT: usize = 80;
/// More than the bytes of a number and its line end.
const LONGEST: usize = 32;

/// A sysctl the agent changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedSysctl {
    /// Its name, such as `net.netfilter.nf_conntrack_tcp_be_liberal`.
    pub name: String,
    /// The last value that was not the agent's.
    pub before: u32,
    /// The value the agent set.
    pub set: u32,
    /// The agent's own value before `set`, which the kernel keeps if the agent ends between record
    /// and change.
    #[serde(skip)]
    earlier: Option<u32>,
}

impl ChangedSysctl {
    /// Returns true for a value the agent set.
    pub fn is_ours(&self, value: u32) -> bool {
        value == self.set || self.earlier == Some(value)
    }
}

/// The sysctls an agent changed, and the pod networks whose connections depend on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    path: PathBuf,
    changed: Vec<ChangedSysctl>,
    networks: BTreeSet<IpNet>,
}

/// The repair of a record that could not be read as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The damaged file, which is kept there.
    pub kept: PathBuf,
    /// The sysctls whose values before could be read.
    pub known: usize,
    /// The number of lines that are lost, and the first of them, shortened.
    pub lost: (usize, String),
}

impl std::fmt::Display for Repair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            kept,
            known,
            lost: (lost, first),
        } = self;
        write!(
            f,
            "the record of changed sysctls was damaged: {lost} lines of another format are left \
             out (the first: {first:?}), \
             {known} sysctls are kept; the damaged file is now {}, and `flannel-agent cleanup` \
             does not set back what only that has",
            kept.display()
        )
    }
}

/// A record that cannot be used.
#[derive(Debug, Error)]
pub enum RecordError {
    /// It cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// It has a line of another format.
    #[error("{} has a line of another format: {line:?}; move the file away to go on without \
        it", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line.
        line: String,
    },
}

impl Record {
    /// Reads the record in a state directory; an empty one where there is none.
    pub fn load(state_dir: &Path) -> Result<Self, RecordError> {
        let (record, lost) = Self::read(state_dir)?;
        match lost {
            (0, _) => Ok(record),
            (_, line) => Err(RecordError::Malformed {
                path: record.path,
                line,
            }),
        }
    }

    /// Reads the record, and repairs one that is damaged: the lines that can be read are the new
    /// record, and the damaged file is kept in the same directory. For the one agent of the state
    /// directory.
    pub fn load_or_repair(state_dir: &Path) -> Result<(Self, Option<Repair>), RecordError> {
        let (record, lost) = Self::read(state_dir)?;
        if lost.0 == 0 {
            return Ok((record, None));
        }
        let kept = state_dir.join(DAMAGED);
        fs::rename(&record.path, &kept).map_err(file::failed("move away", &record.path))?;
        record.save()?;
        let known = record.changed.len();
        Ok((record, Some(Repair { kept, known, lost })))
    }

    /// Reads what can be read. Returns the number of lines that cannot, and the first of them,
    /// shortened.
    fn read(state_dir: &Path) -> Result<(Self, (usize, String)), FileError> {
        let path = path(state_dir);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            // What is there cannot be a record.
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => b"a directory".to_vec(),
            text => text.map_err(file::failed("read", &path))?,
        };
        let (mut record, mut lost) = (
            Self {
                path,
                ..Self::default()
            },
            (0, String::new()),
        );
        for line in String::from_utf8_lossy(&text).lines() {
            if record.parse(line).is_none() {
                lost.0 += 1;
                if lost.0 == 1 {
                    lost.1 = line.chars().take(EXCERPT).collect();
                }
            }
        }
        Ok((record, lost))
    }

    /// Writes the record, readable only for its owner; one without sysctls is removed.
    pub fn save(&self) -> Result<(), FileError> {
        if !self.changed.is_empty() {
            return file::replace(&self.path, self.render().as_bytes(), 0o600);
        }
        file::remove(&self.path)
    }

    /// The sysctls, in the order in which they were first changed.
    pub fn changed(&self) -> &[ChangedSysctl] {
        &self.changed
    }

    /// Pod networks whose connections depend on the values set.
    pub const fn networks(&self) -> &BTreeSet<IpNet> {
        &self.networks
    }

    /// Adds networks; true if one was missing.
    pub fn add_networks(&mut self, networks: &BTreeSet<IpNet>) -> bool {
        let known = self.networks.len();
        self.networks.extend(networks);
        self.networks.len() > known
    }

    /// Notes that a sysctl, which is `now`, is about to be set.
    pub fn note(&mut self, name: &str, now: u32, set: u32) {
        let known = self.changed.iter_mut().find(|changed| changed.name == name);
        let Some(changed) = known else {
            self.changed.push(ChangedSysctl {
                name: name.to_owned(),
                before: now,
                set,
                earlier: None,
            });
            return;
        };
        if changed.is_ours(now) {
            changed.earlier = (now != set).then_some(now);
        } else {
            (changed.before, changed.earlier) = (now, None);
        }
        changed.set = set;
    }

    /// Removes a sysctl.
    pub fn forget(&mut self, name: &str) {
        self.changed.retain(|changed| changed.name != name);
    }

    fn parse(&mut self, line: &str) -> Option<()> {
        match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            ["sysctl", name, before, set, ref earlier @ ..] if earlier.len() < 2 => {
                self.changed.push(ChangedSysctl {
                    name: name.to_owned(),
                    before: before.parse().ok()?,
                    set: set.parse().ok()?,
                    earlier: earlier
                        .first()
                        .map(|value| value.parse())
                        .transpose()
                        .ok()?,
                });
            }
            ["network", network] => drop(self.networks.insert(network.parse().ok()?)),
            [] => {}
            [word, ..] if word.starts_with('#') => {}
            _ => return None,
        }
        Some(())
    }

    fn render(&self) -> String {
        let mut text = HEADER.to_owned();
        // Writing to a string cannot fail.
        for ChangedSysctl {
            name,
            before,
            set,
            earlier,
        } in &self.changed
        {
            let earlier = earlier.map(|value| format!(" {value}")).unwrap_or_default();
            let _ = writeln!(text, "sysctl {name} {before} {set}{earlier}");
        }
        for network in &self.networks {
            let _ = writeln!(text, "network {network}");
        }
        text
    }
}

/// The record of one process, whose parts change different sysctls. Clones are the same record.
#[derive(Clone, Debug, Default)]
pub struct SharedRecord(Arc<Mutex<Record>>);

/// The reason for which a sysctl was not set.
#[derive(Debug, Error)]
pub enum SetError {
    /// The record, without which no sysctl is changed.
    #[error("cannot record the value before: {0}")]
    Record(#[from] FileError),
    /// The kernel.
    #[error("cannot set {name} to {value}: {source}")]
    Write {
        /// The sysctl.
        name: String,
        /// The value it needs.
        value: u32,
        /// The error of the system call.
        source: io::Error,
    },
}

impl SetError {
    /// The kind of the kernel's error.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Write { source, .. } => Some(source.kind()),
            Self::Record(_) => None,
        }
    }
}

impl SharedRecord {
    /// Reads the record in a state directory, and repairs one that is damaged.
    pub fn load_or_repair(state_dir: &Path) -> Result<(Self, Option<Repair>), RecordError> {
        let (record, repair) = Record::load_or_repair(state_dir)?;
        Ok((Self(Arc::new(Mutex::new(record))), repair))
    }

    /// The sysctls, in the order in which they were first changed.
    pub fn changed(&self) -> Vec<ChangedSysctl> {
        self.with(|record| record.changed.clone())
    }

    /// The directory of the record.
    pub fn state_dir(&self) -> PathBuf {
        self.with(|record| record.path.parent().unwrap_or(Path::new("")).to_owned())
    }

    /// Pod networks whose connections depend on the values set.
    pub fn networks(&self) -> BTreeSet<IpNet> {
        self.with(|record| record.networks.clone())
    }

    /// Sets a sysctl, which is `now`, once that is on record. `networks`: pod networks whose
    /// connections depend on it.
    pub fn set(
        &self,
        name: &str,
        now: u32,
        value: u32,
        networks: &BTreeSet<IpNet>,
    ) -> Result<(), SetError> {
        self.with(|record| {
            let before = record.clone();
            record.note(name, now, value);
            record.add_networks(networks);
            let set = record.save().map_err(SetError::from).and_then(|()| {
                write(name, value).map_err(|source| SetError::Write {
                    name: name.to_owned(),
                    value,
                    source,
                })
            });
            if set.is_err() {
                *record = before;
                record.save()?;
            }
            set
        })
    }

    /// Sets sysctls back that this agent no longer changes and an earlier one did, unless they
    /// have other values since. Returns those that were set back, with their value.
    pub fn give_back(&self, names: &[&str]) -> Result<Vec<(String, u32)>, SetError> {
        self.with(|record| {
            let mut restored = Vec::new();
            let recorded: Vec<ChangedSysctl> = record
                .changed
                .iter()
                .filter(|changed| names.contains(&changed.name.as_str()))
                .cloned()
                .collect();
            for changed in recorded {
                let ChangedSysctl {
                    name,
                    before: value,
                    ..
                } = &changed;
                let failed = |source| SetError::Write {
                    name: name.clone(),
                    value: *value,
                    source,
                };
                if read(name)
                    .map_err(failed)?
                    .is_some_and(|now| changed.is_ours(now))
                {
                    write(name, *value).map_err(failed)?;
                    restored.push((name.clone(), *value));
                }
                record.forget(name);
            }
            record.save()?;
            Ok(restored)
        })
    }

    /// Returns true if one of these sysctls is on record.
    pub fn has_any(&self, names: &[&str]) -> bool {
        self.with(|record| {
            record
                .changed
                .iter()
                .any(|changed| names.contains(&changed.name.as_str()))
        })
    }

    /// Adds networks to a record of an earlier process that lacks them.
    pub fn complete(&self, networks: &BTreeSet<IpNet>) -> Result<(), FileError> {
        self.with(|record| {
            if !record.changed.is_empty() && record.add_networks(networks) {
                record.save()
            } else {
                Ok(())
            }
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Record) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The file of the record.
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("sysctls")
}

/// Reads a number; `None` where this kernel does not have the sysctl.
pub fn read(name: &str) -> io::Result<Option<u32>> {
    let mut file = match File::open(file_of(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    // The kernel gives the whole value in one read; this is done every second.
    let mut buffer = [0; LONGEST];
    let length = file.read(&mut buffer)?;
    let text = str::from_utf8(&buffer[..length]).map_err(invalid)?;
    u32::from_str(text.trim()).map(Some).map_err(invalid)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Sets a number.
pub fn write(name: &str, value: u32) -> io::Result<()> {
    fs::write(file_of(name), value.to_string())
}

/// The name of the sysctl with this path below `/proc/sys`. As for `sysctl`, a dot in the name of a
/// device becomes a slash: `net.ipv4.conf.flannel/1.forwarding`.
pub fn name_of(path: &str) -> String {
    swap_separators(path)
}

fn file_of(name: &str) -> String {
    format!("/proc/sys/{}", swap_separators(name))
}

fn swap_separators(text: &str) -> String {
    let swap = |character| match character {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    text.chars().map(swap).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const NAME: &str = "net.netfilter.nf_conntrack_tcp_timeout_unacknowledged";

    fn values(record: &Record) -> Vec<(u32, u32)> {
        record
            .changed()
            .iter()
            .map(|changed| (changed.before, changed.set))
            .collect()
    }

    #[test]
    fn the_value_before_is_never_the_agents_own() {
        let mut record = Record::default();
        for (now, set, expected) in [
            (300, 432_000, (300, 432_000)),
            // The agent ended before it made the change.
            (300, 432_000, (300, 432_000)),
            // The other timeout was raised.
            (432_000, 500_000, (300, 500_000)),
            // The agent ended before it made that change.
            (432_000, 600_000, (300, 600_000)),
            // The operator set another value.
            (60, 600_000, (60, 600_000)),
            // Long ago it was the agent's.
            (432_000, 600_000, (432_000, 600_000)),
        ] {
            record.note(NAME, now, set);
            assert_eq!(values(&record), [expected], "{now} to {set}");
        }
    }

    #[test]
    fn a_record_survives_its_agent() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut record = Record::load(dir.path()).expect("none yet");
        record.note(NAME, 300, 432_000);
        record.note(NAME, 432_000, 500_000);
        record.note("net.netfilter.nf_conntrack_tcp_be_liberal", 0, 1);
        let networks =
            ["10.244.0.0/16", "fd00:244::/48"].map(|network| network.parse().expect("a network"));
        assert!(record.add_networks(&networks.into()) && !record.add_networks(&networks.into()));
        record.save().expect("written");
        let mode = fs::metadata(path(dir.path()))
            .expect("metadata")
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o600);
        let mut read = Record::load(dir.path()).expect("as written");
        assert_eq!(read, record);
        for name in [NAME, "net.netfilter.nf_conntrack_tcp_be_liberal"] {
            read.forget(name);
        }
        read.save().expect("removed");
        assert_eq!(fs::read_dir(dir.path()).expect("the directory").count(), 0);
    }

    #[test]
    fn a_damaged_record_is_repaired_and_kept() {
        let good = "sysctl net.y 0 1\nnetwork 10.244.0.0/16\n";
        for (damage, known) in [
            (format!("{HEADER}{good}sysctl net.z on"), 1),
            (format!("else\n{good}"), 1),
            ("\0".repeat(4096), 0),
            (format!("\u{fffd}\u{fffd} garbage\n{good}"), 1),
        ] {
            let dir = tempfile::tempdir().expect("a directory");
            fs::write(path(dir.path()), &damage).expect("written");
            let (record, repair) = Record::load_or_repair(dir.path()).expect("repaired");
            let repair = repair.expect("a repair");
            assert_eq!(
                (record.changed().len(), repair.known, repair.lost.0),
                (known, known, 1),
                "{damage:?}"
            );
            assert_eq!(fs::read_to_string(&repair.kept).expect("kept"), damage);
            let text = repair.to_string();
            assert!(
                text.contains("sysctls.damaged") && text.len() < 700,
                "{text}"
            );
            // It is whole now, for every reader.
            assert_eq!(
                Record::load(dir.path()).expect("whole").changed(),
                record.changed()
            );
            assert_eq!(Record::load_or_repair(dir.path()).expect("whole").1, None);
        }
    }

    #[test]
    fn a_directory_in_place_of_a_record_is_moved_away() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(path(dir.path())).expect("created");
        let (mut record, repair) = Record::load_or_repair(dir.path()).expect("repaired");
        assert!(repair.expect("a repair").kept.is_dir());
        record.note(NAME, 300, 432_000);
        record.save().expect("written");
    }

    #[test]
    fn bytes_that_are_no_text_are_repaired() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(path(dir.path()), b"\xff\xfe\n").expect("written");
        assert!(
            Record::load_or_repair(dir.path())
                .expect("repaired")
                .1
                .is_some()
        );
        assert_eq!(
            Record::load_or_repair(dir.path()).expect("none"),
            (
                Record {
                    path: path(dir.path()),
                    ..Record::default()
                },
                None
            )
        );
    }

    #[test]
    fn a_dot_in_the_name_of_a_device_is_not_a_separator() {
        let name = name_of("net/ipv6/conf/flannel-v6.1/disable_ipv6");
        assert_eq!(name, "net.ipv6.conf.flannel-v6/1.disable_ipv6");
        assert_eq!(
            file_of(&name),
            "/proc/sys/net/ipv6/conf/flannel-v6.1/disable_ipv6"
        );
        assert_eq!(
            file_of(NAME),
            "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_unacknowledged"
        );
    }

    /// `kernel.ostype` is a sysctl that cannot be set.
    #[test]
    fn what_could_not_be_set_is_not_on_record() {
        let dir = tempfile::tempdir().expect("a directory");
        let (record, _) = SharedRecord::load_or_repair(dir.path()).expect("none yet");
        let error = record
            .set("kernel.ostype", 1, 2, &BTreeSet::new())
            .expect_err("read-only");
        assert!(error.to_string().contains("kernel.ostype"), "{error}");
        assert_eq!(record.changed(), []);
        assert!(!path(dir.path()).exists(), "a record of nothing");
    }

    #[test]
    fn a_line_of_another_format_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        for line in [
            "sysctl net.x 1",
            "sysctl net.x 1 2 3 4",
            "sysctl net.x one 2",
            "network 10.244.0.0",
            "else",
        ] {
            fs::write(
                path(dir.path()),
                format!("{HEADER}sysctl net.y 0 1\n{line}\n"),
            )
            .expect("written");
            let error = Record::load(dir.path()).expect_err(line).to_string();
            assert!(error.contains(line), "{error}");
        }
    }
}
