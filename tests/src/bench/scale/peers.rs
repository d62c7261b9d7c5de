//! The peers: leases of `/24` in `10.0.0.0/8`, each of a separate node behind the router.

use std::net::Ipv4Addr;

use crate::StockNode;

/// The network of all of them, and of the node under test.
pub(super) const NETWORK: &str =
    r#"{"Network":"10.0.0.0/8","SubnetLen":24,"Backend":{"Type":"vxlan"}}"#;
/// As many as leave some subnets for the node under test and for those that come and go.
pub(super) const MOST: u32 = 65_400;

/// One peer, by its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberedPeer(pub(super) u32);

impl NumberedPeer {
    /// The first `count` of them.
    pub(super) fn first(count: u32) -> impl Iterator<Item = Self> {
        (1..=count).map(Self)
    }

    /// The first address of its subnet.
    pub(super) fn base(self) -> Ipv4Addr {
        Ipv4Addr::from((10 << 24) | (self.0 << 8))
    }

    /// Returns the underlay address of the peer's node.
    pub(super) fn public_ip(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(172, 16, 0, 0)) + self.0)
    }

    /// Its VTEP's MAC address.
    pub(super) fn mac(self) -> String {
        let [_, a, b, c] = self.0.to_be_bytes();
        format!("02:00:00:{a:02x}:{b:02x}:{c:02x}")
    }

    /// Its lease.
    pub(super) fn lease(self) -> StockNode {
        StockNode::named(
            &format!("{}-24", self.base()),
            &self.public_ip().to_string(),
            &self.mac(),
        )
    }
}
