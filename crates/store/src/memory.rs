//! The record of the lease that this node published last, in its state directory: the proof that
//! a lease is its own.
//!
//! An address, and even a VTEP MAC, may be another machine's as well: DHCP gave the address to
//! another one, or a machine was copied. The record names the lease as the store had it after our
//! last write, and the Ethernet address of the interface by which this node was reached. A copy of
//! the file on a machine without that interface proves nothing.

use std::{collections::BTreeSet, fs, io, path::PathBuf};

use flannel_common::packet::addr::Mac;
use flannel_host::file::{self, FileError};
use serde::{Deserialize, Serialize};

/// The place of a node's record, and the interfaces that it has.
#[derive(Clone, Debug)]
pub struct NodeMemory {
    /// The file.
    pub file: PathBuf,
    /// The Ethernet address of the external interface; `None` if it has none. Without it there is
    /// no record.
    pub interface: Option<Mac>,
    /// The Ethernet addresses of all interfaces of this host.
    pub interfaces: BTreeSet<Mac>,
}

/// A lease as the store had it after our last write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseRecord {
    /// The Ethernet address of the external interface, as text.
    interface: String,
    /// The name of the entry.
    pub(crate) name: String,
    /// The etcd lease that it hangs on; 0 for a reservation.
    pub(crate) etcd_lease: i64,
    /// The value.
    pub(crate) value: String,
}

/// The content of the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// There is none.
    #[default]
    Nothing,
    /// This machine published it.
    Lease(LeaseRecord),
    /// The state directory is a copy: another machine wrote it.
    OfAnotherMachine,
}

impl NodeMemory {
    /// Reads the record.
    pub(crate) fn read(&self) -> Result<Recorded, FileError> {
        let text = match fs::read(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Recorded::Nothing),
            Err(error) => return Err(file::failed("read", &self.file)(error)),
        };
        let Ok(record) = serde_json::from_slice::<LeaseRecord>(&text) else {
            tracing::warn!(file = %self.file.display(), "the record of our lease cannot be read; \
                it is written again");
            return Ok(Recorded::Nothing);
        };
        let is_here = self
            .interfaces
            .iter()
            .any(|mac| mac.to_string() == record.interface);
        Ok(if is_here {
            Recorded::Lease(record)
        } else {
            Recorded::OfAnotherMachine
        })
    }

    /// Makes the record of a lease, unless this node cannot prove that it is its own.
    pub(crate) fn record(&self, name: &str, etcd_lease: i64, value: String) -> Option<LeaseRecord> {
        let interface = self.interface?.to_string();
        Some(LeaseRecord {
            interface,
            name: name.to_owned(),
            etcd_lease,
            value,
        })
    }

    /// Writes a record. Blocks on the disk.
    pub(crate) fn write(&self, record: &LeaseRecord) -> Result<(), FileError> {
        let text = serde_json::to_vec(record).expect("texts and a number always serialise");
        file::replace(&self.file, &text, 0o600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(file: PathBuf, interfaces: &[u8]) -> NodeMemory {
        let mac = |n: &u8| Mac([2, 0, 0, 0, 0, *n]);
        NodeMemory {
            file,
            interface: interfaces.first().map(mac),
            interfaces: interfaces.iter().map(mac).collect(),
        }
    }

    #[test]
    fn a_record_is_read_on_the_machine_that_wrote_it_by_any_interface_and_on_no_other() {
        let scratch = tempfile::tempdir().expect("a directory");
        let here = memory(scratch.path().join("lease"), &[1]);
        assert_eq!(here.read().expect("no file"), Recorded::Nothing);
        let record = here
            .record("10.5.1.0-24", 7, "{}".to_owned())
            .expect("an interface");
        here.write(&record).expect("written");
        let recorded = |interfaces: &[u8]| {
            memory(here.file.clone(), interfaces)
                .read()
                .expect("readable")
        };
        assert_eq!(recorded(&[1]), Recorded::Lease(record.clone()));
        assert_eq!(
            recorded(&[2, 1]),
            Recorded::Lease(record),
            "by another external interface"
        );
        assert_eq!(recorded(&[2]), Recorded::OfAnotherMachine);
        assert_eq!(
            memory(here.file.clone(), &[]).record("10.5.1.0-24", 7, String::new()),
            None
        );
        fs::write(&here.file, "nonsense").expect("written");
        assert_eq!(recorded(&[1]), Recorded::Nothing);
    }
}
