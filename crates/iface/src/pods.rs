//! Addresses of the external interface that lie in a pod network. Pure.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;

/// An address of a node in a pod network. The agent serves such a node, and its pods miss
/// something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressInPods {
    /// The address.
    pub address: IpAddr,
    /// The pod network.
    pub network: IpNet,
}

impl AddressInPods {
    /// The remedy.
    pub const REMEDY: &str = "choose a pod network without addresses of hosts";

    /// Returns the addresses that lie in a pod network, each once.
    pub fn find(addresses: impl IntoIterator<Item = IpAddr>, networks: &[IpNet]) -> Vec<Self> {
        let inside = addresses.into_iter().filter_map(|address| {
            let network = networks.iter().find(|network| network.contains(&address))?;
            Some(Self {
                address,
                network: *network,
            })
        });
        let mut found: Vec<_> = inside.collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl fmt::Display for AddressInPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, network } = self;
        write!(
            f,
            "the address {address} of the external interface is in the pod network {network}: \
             packets of pods to hosts \
             in it are not masqueraded, and nodes refuse a lease with a public address in it"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_a_pod_network_are_found_once() {
        let networks =
            ["10.0.0.0/8", "fd00::/48"].map(|network| network.parse().expect("a network"));
        let addresses = ["10.0.0.5", "192.0.2.1", "fd00::1", "10.0.0.5"]
            .map(|text| text.parse().expect("an address"));
        let found = AddressInPods::find(addresses, &networks);
        assert_eq!(
            found
                .iter()
                .map(|found| found.address.to_string())
                .collect::<Vec<_>>(),
            ["10.0.0.5", "fd00::1"]
        );
        let text = found[0].to_string();
        assert!(
            text.starts_with(
                "the address 10.0.0.5 of the external interface is in the pod network 10.0.0.0/8"
            ),
            "{text}"
        );
        assert_eq!(AddressInPods::find(addresses, &[]), []);
    }
}
