//! The record of pod networks on this host: those that agents of this state directory had, and
//! those of other agents.
//!
//! With the first an agent knows the rules of a former network also without `subnet.env`. With the
//! second it keeps the objects of another agent while that does not run. The record is a file
//! in the state directory, and goes with a reboot where that does.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use flannel_host::{error_chain::chain, file, networks::overlap};
use ipnet::IpNet;

const HEADER: &str = "# Pod networks on this host: those of this agent, former ones too, and those \
    of other agents.\n";

/// The record.
#[derive(Clone, Debug, Default)]
pub struct NetworksRecord {
    path: PathBuf,
    /// The networks of the present configuration.
    own: Vec<IpNet>,
    /// Those that an agent of this state directory had.
    known: BTreeSet<IpNet>,
    /// Those of other agents.
    others: BTreeSet<IpNet>,
}

impl NetworksRecord {
    /// Reads the record and adds the networks that this agent has now. Without a
    /// record that can be read and written, what is not known stays.
    pub fn open(state_dir: &Path, own: impl IntoIterator<Item = IpNet>) -> Self {
        let path = path(state_dir);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %path.display(), "cannot read the former pod \
                    networks");
                String::new()
            }
            text => text.unwrap_or_default(),
        };
        let networks = |word: &str| {
            let lines = text
                .lines()
                .filter_map(|line| line.strip_prefix(word)?.trim().parse().ok());
            lines.collect::<BTreeSet<IpNet>>()
        };
        let (known, others) = (networks("own "), networks("other "));
        let mut record = Self {
            path,
            own: own.into_iter().collect(),
            known,
            others,
        };
        record.known.extend(record.own.iter().copied());
        record
            .others
            .retain(|other| !record.own.iter().any(|own| overlap(*own, *other)));
        record
            .known
            .retain(|known| record.own.contains(known) || !record.others.contains(known));
        record.save();
        record
    }

    /// The networks of the present configuration.
    pub fn own(&self) -> &[IpNet] {
        &self.own
    }

    /// Networks that this node had, and has no more.
    pub fn former(&self) -> impl Iterator<Item = IpNet> {
        self.known
            .iter()
            .copied()
            .filter(|network| !self.own.contains(network))
    }

    /// Networks of other agents that this one saw.
    pub(super) fn others(&self) -> Vec<IpNet> {
        self.others.iter().copied().collect()
    }

    /// Networks that other agents have now. One that this node had before is theirs now.
    pub(super) fn add_others(&mut self, networks: &[IpNet]) {
        let before = (self.others.len(), self.known.len());
        self.others.extend(
            networks
                .iter()
                .filter(|network| !self.own.iter().any(|own| overlap(*own, **network))),
        );
        self.known
            .retain(|known| self.own.contains(known) || !networks.contains(known));
        if (self.others.len(), self.known.len()) != before {
            self.save();
        }
    }

    fn save(&self) {
        let mut text = HEADER.to_owned();
        for (word, networks) in [("own", &self.known), ("other", &self.others)] {
            for network in networks {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{word} {network}");
            }
        }
        if let Err(error) = file::replace(&self.path, text.as_bytes(), 0o600) {
            tracing::warn!(
                error = chain(&error),
                "cannot record the pod networks of this host"
            );
        }
    }
}

/// The file of the record.
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("networks")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    #[test]
    fn a_former_network_is_known_to_the_next_agent() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = NetworksRecord::open(dir.path(), [net("10.244.0.0/16")]);
        assert_eq!(first.former().count(), 0);
        let second = NetworksRecord::open(dir.path(), [net("172.20.0.0/16")]);
        assert_eq!(second.former().collect::<Vec<_>>(), [net("10.244.0.0/16")]);
    }

    #[test]
    fn a_network_of_another_agent_stays_known_and_is_not_a_former_one() {
        let dir = tempfile::tempdir().expect("a directory");
        drop(NetworksRecord::open(dir.path(), [net("10.244.0.0/16")]));
        let mut record = NetworksRecord::open(dir.path(), [net("172.20.0.0/16")]);
        record.add_others(&[net("10.244.0.0/16"), net("10.55.0.0/16")]);
        assert_eq!(record.former().count(), 0, "the other agent has it now");
        let again = NetworksRecord::open(dir.path(), [net("172.20.0.0/16")]);
        assert_eq!(again.others(), [net("10.55.0.0/16"), net("10.244.0.0/16")]);
        assert_eq!(again.former().count(), 0);
        // Its agent is gone, and the network is ours.
        let ours = NetworksRecord::open(dir.path(), [net("10.55.0.0/16")]);
        assert_eq!(ours.others(), [net("10.244.0.0/16")]);
    }
}
