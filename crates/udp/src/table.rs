//! The peers: a subnet to the node that has it, and the nodes that may send.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use ipnet::Ipv4Net;

/// Returns an address of the network that no node has. The kernel routes packets to it to the
/// device, so it accepts packets from it there. An ICMP error from the device's own address would
/// be a martian to the kernel (`fib_validate_source()` in [net/ipv4/fib_frontend.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/fib_frontend.c)).
fn gateway(network: Ipv4Net, own: Option<Ipv4Net>) -> Ipv4Addr {
    let is_own = own.is_some_and(|own| own.contains(&network.network()));
    if is_own {
        network.broadcast()
    } else {
        network.network()
    }
}

/// The subnets of a node and its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerTable {
    network: Ipv4Net,
    own: Option<Ipv4Net>,
    peers: BTreeMap<Ipv4Net, Ipv4Addr>,
    /// First address, last address and node of each subnet, by first address. Leases of overlapping
    /// subnets are refused, so at most one contains an address.
    routes: Vec<(u32, u32, Ipv4Addr)>,
    /// Sorted.
    senders: Vec<Ipv4Addr>,
}

impl PeerTable {
    /// Of a network, without a peer.
    pub(crate) const fn new(network: Ipv4Net) -> Self {
        Self {
            network,
            own: None,
            peers: BTreeMap::new(),
            routes: Vec::new(),
            senders: Vec::new(),
        }
    }

    /// Returns the same table with other peers.
    pub(crate) fn changed(
        &self,
        own: Option<Ipv4Net>,
        upserts: &BTreeMap<Ipv4Net, Ipv4Addr>,
        removals: &[Ipv4Net],
    ) -> Self {
        let mut peers = self.peers.clone();
        peers.retain(|subnet, _| !removals.contains(subnet));
        peers.extend(upserts);
        let route = |(subnet, node): (&Ipv4Net, &Ipv4Addr)| {
            (
                u32::from(subnet.network()),
                u32::from(subnet.broadcast()),
                *node,
            )
        };
        let routes = peers.iter().map(route).collect();
        let mut senders: Vec<_> = peers.values().copied().collect();
        senders.sort_unstable();
        senders.dedup();
        let mut table = Self {
            network: self.network,
            own: own.or(self.own),
            peers,
            routes,
            senders,
        };
        table.routes.sort_unstable();
        table
    }

    /// Returns the node that has an address.
    pub(crate) fn route(&self, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        let address = u32::from(destination);
        let after = self.routes.partition_point(|(first, ..)| *first <= address);
        let (_, last, node) = self.routes.get(after.checked_sub(1)?)?;
        (address <= *last).then_some(*node)
    }

    /// Returns true if packets of this node are accepted.
    pub(crate) fn has_sender(&self, node: Ipv4Addr) -> bool {
        self.senders.binary_search(&node).is_ok()
    }

    /// The peers.
    pub(crate) const fn peers(&self) -> &BTreeMap<Ipv4Net, Ipv4Addr> {
        &self.peers
    }

    /// Our own subnet, once it is known.
    pub(crate) const fn own(&self) -> Option<Ipv4Net> {
        self.own
    }

    /// The source of errors to senders on this node.
    pub(crate) fn gateway(&self) -> Ipv4Addr {
        gateway(self.network, self.own)
    }

    /// The address of the device: the source of errors to senders on other nodes.
    pub(crate) fn device(&self) -> Option<Ipv4Addr> {
        self.own.map(|own| own.network())
    }
}

/// The current table. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedTable(Arc<(AtomicU64, RwLock<Arc<PeerTable>>)>);

impl SharedTable {
    /// With this table.
    pub(crate) fn new(table: PeerTable) -> Self {
        Self(Arc::new((AtomicU64::new(1), RwLock::new(Arc::new(table)))))
    }

    /// Returns the table.
    pub(crate) fn get(&self) -> Arc<PeerTable> {
        Arc::clone(&self.0.1.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the table.
    pub(crate) fn set(&self, table: PeerTable) {
        *self.0.1.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
        self.0.0.fetch_add(1, Ordering::Release);
    }

    /// Returns a reader for one thread.
    pub(crate) fn reader(&self) -> TableReader {
        TableReader {
            shared: self.clone(),
            version: 0,
            table: self.get(),
        }
    }
}

/// A thread's copy of the current table.
#[derive(Debug)]
pub(crate) struct TableReader {
    shared: SharedTable,
    version: u64,
    table: Arc<PeerTable>,
}

impl TableReader {
    /// Returns the current table, without a lock while it is unchanged.
    pub(crate) fn current(&mut self) -> &PeerTable {
        let version = self.shared.0.0.load(Ordering::Acquire);
        if version != self.version {
            (self.version, self.table) = (version, self.shared.get());
        }
        &self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv4Net {
        text.parse().expect("a subnet")
    }

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().expect("an address")
    }

    fn table() -> PeerTable {
        let rows = [
            ("10.5.2.0/24", "192.0.2.2"),
            ("10.5.8.0/22", "192.0.2.8"),
            ("10.5.3.0/26", "192.0.2.2"),
        ];
        let peers = rows.map(|(subnet, node)| (net(subnet), ip(node))).into();
        PeerTable::new(net("10.5.0.0/16")).changed(Some(net("10.5.1.0/24")), &peers, &[])
    }

    #[test]
    fn an_address_leads_to_the_node_that_has_its_subnet() {
        let table = table();
        for (address, node) in [
            ("10.5.2.0", Some("192.0.2.2")),
            ("10.5.2.255", Some("192.0.2.2")),
            ("10.5.3.63", Some("192.0.2.2")),
            ("10.5.3.64", None),
            ("10.5.11.255", Some("192.0.2.8")),
            ("10.5.12.0", None),
            ("10.5.1.1", None),
            ("0.0.0.0", None),
            ("255.255.255.255", None),
        ] {
            assert_eq!(table.route(ip(address)), node.map(ip), "{address}");
        }
        assert!(table.has_sender(ip("192.0.2.8")) && !table.has_sender(ip("192.0.2.9")));
    }

    #[test]
    fn peers_come_and_go_by_difference_and_readers_see_it() {
        let shared = SharedTable::new(table());
        let mut reader = shared.reader();
        assert!(reader.current().has_sender(ip("192.0.2.2")));
        let moved = [(net("10.5.2.0/24"), ip("192.0.2.7"))].into();
        shared.set(shared.get().changed(None, &moved, &[net("10.5.3.0/26")]));
        let now = reader.current();
        assert_eq!(now.route(ip("10.5.2.9")), Some(ip("192.0.2.7")));
        assert_eq!(now.route(ip("10.5.3.1")), None);
        assert!(
            !now.has_sender(ip("192.0.2.2")),
            "none of its subnets is left"
        );
        assert_eq!(
            now.own(),
            Some(net("10.5.1.0/24")),
            "kept where a change does not name it"
        );
    }

    #[test]
    fn errors_come_from_an_address_that_is_not_of_this_node() {
        assert_eq!(
            (table().gateway(), table().device()),
            (ip("10.5.0.0"), Some(ip("10.5.1.0")))
        );
        let first = PeerTable::new(net("10.5.0.0/16")).changed(
            Some(net("10.5.0.0/24")),
            &BTreeMap::new(),
            &[],
        );
        assert_eq!(
            (first.gateway(), first.device()),
            (ip("10.5.255.255"), Some(ip("10.5.0.0")))
        );
    }
}
