//! The ends of tunnels, and flannel's names of what lies between two of them. Pure.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// Shared keys that the agent loads have names that start with this.
const KEY: &str = "flannel-";

/// One end of a tunnel: a node, and the subnet of its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpsecEnd {
    /// The subnet.
    pub subnet: Ipv4Net,
    /// The address of the node.
    pub address: Ipv4Addr,
}

/// The name of the connection between two ends.
pub(super) fn connection(own: IpsecEnd, peer: IpsecEnd) -> String {
    format!(
        "{}-{}-{}-{}",
        own.address, own.subnet, peer.subnet, peer.address
    )
}

/// The name of its one child.
pub(super) fn child(own: IpsecEnd, peer: IpsecEnd) -> String {
    format!("{}-{}", own.subnet, peer.subnet)
}

/// Returns the name of the shared key of an address. The protocol between nodes does not use it.
pub(super) fn shared_key(address: Ipv4Addr) -> String {
    format!("{KEY}{address}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_flannels() {
        let end = |subnet: &str, address: &str| IpsecEnd {
            subnet: subnet.parse().expect("a subnet"),
            address: address.parse().expect("an address"),
        };
        let (own, peer) = (
            end("10.5.1.0/24", "192.0.2.1"),
            end("10.5.9.0/24", "192.0.2.9"),
        );
        assert_eq!(
            connection(own, peer),
            "192.0.2.1-10.5.1.0/24-10.5.9.0/24-192.0.2.9"
        );
        assert_eq!(child(own, peer), "10.5.1.0/24-10.5.9.0/24");
    }
}
