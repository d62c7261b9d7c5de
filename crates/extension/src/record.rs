//! The record of the peers that a command was run for: one file for each, with the command that
//! undoes it and all that this command needs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use flannel_host::file::{self, FileError, failed};
use flannel_store::config::CommandLine;
use serde::{Deserialize, Serialize};

use super::{
    environment::{Networks, NodeFacts},
    error::{ExtensionError, Key},
    limits::PATIENCE,
    run::{Job, run},
};

/// The directory below the state directory.
const DIRECTORY: &str = "extension";

/// A peer, and the commands that are run for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PeerRecord {
    /// Its store entry.
    pub(super) entry: String,
    /// The command that was run.
    pub(super) add: Option<CommandLine>,
    /// The command that undoes it.
    pub(super) remove: Option<CommandLine>,
    pub(super) networks: Networks,
    pub(super) node: NodeFacts,
    /// The text that the peer publishes.
    pub(super) data: String,
    /// False until the command succeeded: it may have done a part of its work.
    pub(super) complete: bool,
}

impl PeerRecord {
    /// The same, as it is while the command runs.
    pub(super) fn incomplete(&self) -> Self {
        Self {
            complete: false,
            ..self.clone()
        }
    }

    /// Runs `SubnetAddCommand`.
    pub(super) async fn run_add(&self) -> Result<(), ExtensionError> {
        self.run(Key::SubnetAdd, self.add.as_ref()).await
    }

    /// Runs `SubnetRemoveCommand`.
    pub(super) async fn run_remove(&self) -> Result<(), ExtensionError> {
        self.run(Key::SubnetRemove, self.remove.as_ref()).await
    }

    async fn run(&self, key: Key, command: Option<&CommandLine>) -> Result<(), ExtensionError> {
        let Some(command) = command else {
            return Ok(());
        };
        let job = Job {
            key,
            command,
            networks: self.networks,
            node: &self.node,
            input: Some(&self.data),
            patience: PATIENCE,
        };
        let printed = run(&job).await?;
        tracing::debug!(%key, peer = self.entry, printed, "command done");
        Ok(())
    }
}

/// The files.
#[derive(Debug)]
pub(super) struct Records {
    directory: PathBuf,
}

/// A file of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The file.
    pub path: PathBuf,
    /// Its content; `None` if it cannot be read as one.
    peer: Option<PeerRecord>,
}

impl Recorded {
    /// The subnets of the peer, for messages.
    pub fn subnets(&self) -> String {
        self.peer
            .as_ref()
            .map(|peer| peer.node.subnets())
            .unwrap_or_default()
    }

    /// Returns true if a command undoes what was done for the peer.
    pub fn has_command(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.remove.is_some())
    }
}

impl Records {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self {
            directory: directory(state_dir),
        }
    }

    /// The peers on record. A file that cannot be read as one is left out, and logged.
    pub(super) fn read(&self) -> Result<Vec<PeerRecord>, FileError> {
        let mut peers = Vec::new();
        for Recorded { path, peer } in read(&self.directory)? {
            if let Some(peer) = peer {
                peers.push(peer);
            } else {
                tracing::warn!(path = %path.display(), "not a record of a peer; left alone");
            }
        }
        Ok(peers)
    }

    pub(super) fn write(&self, peer: &PeerRecord) -> Result<(), FileError> {
        let text =
            serde_json::to_string(peer).expect("texts, numbers and addresses always serialise");
        file::replace(&self.path(&peer.entry), text.as_bytes(), 0o600)
    }

    pub(super) fn remove(&self, entry: &str) -> Result<(), FileError> {
        file::remove(&self.path(entry))
    }

    fn path(&self, entry: &str) -> PathBuf {
        self.directory.join(file_name(entry))
    }
}

/// The directory of the record.
pub(super) fn directory(state_dir: &Path) -> PathBuf {
    state_dir.join(DIRECTORY)
}

/// The record in a state directory, and its directory where there is one.
pub fn recorded(state_dir: &Path) -> Result<(Vec<Recorded>, Option<PathBuf>), FileError> {
    let directory = directory(state_dir);
    let records = read(&directory)?;
    Ok((records, directory.is_dir().then_some(directory)))
}

/// Runs the command that undoes what was done for a peer, and removes the file.
pub async fn undo(recorded: &Recorded) -> Result<(), ExtensionError> {
    if let Some(peer) = &recorded.peer {
        peer.run_remove().await?;
    }
    Ok(fs::remove_file(&recorded.path).map_err(failed("remove", &recorded.path))?)
}

fn read(directory: &Path) -> Result<Vec<Recorded>, FileError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed("read the directory", directory))?,
    };
    let mut records = Vec::new();
    for entry in entries {
        let path = entry
            .map_err(failed("read the directory", directory))?
            .path();
        let text = fs::read(&path).map_err(failed("read", &path))?;
        records.push(Recorded {
            peer: serde_json::from_slice(&text).ok(),
            path,
        });
    }
    records.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(records)
}

/// Names of nodes and subnets as they are; everything else in hexadecimal, so that two entries have
/// two names and none leads elsewhere.
fn file_name(entry: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let written = |(at, byte): (usize, u8)| {
        if plain(byte) && (at, byte) != (0, b'.') {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02x}")
        }
    };
    entry.bytes().enumerate().map(written).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(entry: &str) -> PeerRecord {
        let mut node = NodeFacts::default();
        node.set_subnet("10.5.9.0/24".parse().expect("a subnet"));
        PeerRecord {
            entry: entry.to_owned(),
            add: None,
            remove: None,
            networks: Networks::default(),
            node,
            data: "text".to_owned(),
            complete: true,
        }
    }

    #[test]
    fn peers_are_found_again_and_removed() {
        let scratch = tempfile::tempdir().expect("a directory");
        let records = Records::new(scratch.path());
        assert_eq!(records.read().expect("nothing"), []);
        let [a, b] = ["10.5.9.0-24", "10.5.8.0-24&fd00--0-64"].map(peer);
        records.write(&a).expect("written");
        records.write(&b).expect("written");
        fs::write(directory(scratch.path()).join("other"), "{}").expect("a file");
        assert_eq!(records.read().expect("peers"), [b.clone(), a]);
        let (all, directory) = recorded(scratch.path()).expect("readable");
        assert_eq!(
            all.iter().map(Recorded::subnets).collect::<Vec<_>>(),
            ["10.5.9.0/24", "10.5.9.0/24", ""]
        );
        assert!(directory.is_some());
        records.remove(&b.entry).expect("removed");
        records.remove(&b.entry).expect("gone already");
        assert_eq!(records.read().expect("peers").len(), 1);
    }

    #[test]
    fn an_entry_leads_to_no_other_place() {
        let names = ["node-1.example", "..", "../x", "a/b", "a%2fb"].map(file_name);
        assert_eq!(
            names,
            ["node-1.example", "%2e.", "%2e.%2fx", "a%2fb", "a%252fb"]
        );
    }
}
