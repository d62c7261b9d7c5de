//! The peers as their store entries have them: both families of a node are one peer.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use flannel_store::Peer;
use ipnet::IpNet;

use super::environment::NodeFacts;

/// The accepted leases, by store entry.
#[derive(Debug, Default)]
pub(super) struct ExtensionPeers {
    entries: BTreeMap<String, BTreeMap<IpNet, Peer>>,
    /// The entry of each subnet.
    owners: BTreeMap<IpNet, String>,
}

/// A peer as a command knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PeerFacts {
    pub(super) node: NodeFacts,
    /// The text it publishes; that for IPv4 where there are two.
    pub(super) data: Option<Arc<str>>,
}

impl ExtensionPeers {
    /// Takes in changes. Returns the entries concerned.
    pub(super) fn change(
        &mut self,
        all: bool,
        peers: BTreeMap<IpNet, Option<Peer>>,
    ) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        if all {
            let gone: Vec<IpNet> = self
                .owners
                .keys()
                .filter(|subnet| !peers.contains_key(subnet))
                .copied()
                .collect();
            touched.extend(gone.into_iter().filter_map(|subnet| self.remove(subnet)));
        }
        for (subnet, peer) in peers {
            touched.extend(self.remove(subnet));
            if let Some(peer) = peer {
                touched.insert(peer.key.to_string());
                self.owners.insert(subnet, peer.key.to_string());
                self.entries
                    .entry(peer.key.to_string())
                    .or_default()
                    .insert(subnet, peer);
            }
        }
        touched
    }

    fn remove(&mut self, subnet: IpNet) -> Option<String> {
        let entry = self.owners.remove(&subnet)?;
        if let Some(subnets) = self.entries.get_mut(&entry) {
            subnets.remove(&subnet);
            if subnets.is_empty() {
                self.entries.remove(&entry);
            }
        }
        Some(entry)
    }

    /// The peer of an entry.
    pub(super) fn of(&self, entry: &str) -> Option<PeerFacts> {
        let subnets = self.entries.get(entry)?;
        let mut node = NodeFacts::default();
        for peer in subnets.values() {
            node.add(peer);
        }
        Some(PeerFacts {
            node,
            data: subnets.values().find_map(Peer::text).map(Arc::from),
        })
    }
}

#[cfg(test)]
mod tests {
    use flannel_store::TunnelEnd;

    use super::*;

    fn peer(key: &str, subnet: &str, public_ip: &str, text: Option<&str>) -> (IpNet, Option<Peer>) {
        let subnet = subnet.parse().expect("a subnet");
        let public_ip = public_ip.parse().expect("an address");
        let end = text.map(|text| TunnelEnd::Text(Arc::new(text.to_owned())));
        (
            subnet,
            Some(Peer {
                subnet,
                public_ip,
                end,
                key: key.into(),
            }),
        )
    }

    #[test]
    fn both_families_of_an_entry_are_one_peer() {
        let mut peers = ExtensionPeers::default();
        let both = [
            peer("a", "10.5.1.0/24", "192.0.2.1", Some("v4")),
            peer("a", "fd00:1::/64", "2001:db8::1", Some("v6")),
        ];
        let other = peer("b", "10.5.2.0/24", "192.0.2.2", None);
        let touched = peers.change(true, both.clone().into_iter().chain([other]).collect());
        assert_eq!(touched.into_iter().collect::<Vec<_>>(), ["a", "b"]);
        let facts = peers.of("a").expect("a peer");
        assert_eq!(
            (facts.node.subnets(), facts.data.as_deref()),
            ("10.5.1.0/24 and fd00:1::/64".to_owned(), Some("v4"))
        );

        let gone = [("10.5.1.0/24".parse().expect("a subnet"), None)].into();
        assert_eq!(peers.change(false, gone).len(), 1);
        let facts = peers.of("a").expect("a peer");
        assert_eq!(
            (facts.node.subnets(), facts.data.as_deref()),
            ("fd00:1::/64".to_owned(), Some("v6"))
        );
        let touched = peers.change(true, [both[0].clone()].into());
        assert_eq!(touched.into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            (
                peers.of("a").map(|facts| facts.node.subnets()),
                peers.of("b")
            ),
            (Some("10.5.1.0/24".to_owned()), None)
        );
    }

    #[test]
    fn a_subnet_may_go_to_another_entry() {
        let mut peers = ExtensionPeers::default();
        peers.change(false, [peer("a", "10.5.1.0/24", "192.0.2.1", None)].into());
        let touched = peers.change(false, [peer("b", "10.5.1.0/24", "192.0.2.2", None)].into());
        assert_eq!(touched.into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((peers.of("a"), peers.of("b").is_some()), (None, true));
    }
}
