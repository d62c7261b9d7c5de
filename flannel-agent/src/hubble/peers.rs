//! The addresses at which clients reach the observers of all nodes. Pure.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use flannel_hubble::peer::PeerAddresses;

/// The addresses of these nodes, whose observers listen at the port of this one (`own`), which
/// listens at `listen`. A node without an address is left out.
pub(super) fn addresses(
    nodes: &BTreeMap<String, Vec<IpAddr>>,
    own: &str,
    listen: SocketAddr,
) -> PeerAddresses {
    let address = |name: &str, known: &[IpAddr]| {
        let is_chosen = name == own && !listen.ip().is_unspecified();
        if is_chosen {
            Some(listen.ip())
        } else {
            reachable(known, listen)
        }
    };
    let at = |(name, known): (&String, &Vec<IpAddr>)| {
        let ip = address(name, known)?;
        Some((name.clone(), SocketAddr::new(ip, listen.port())))
    };
    nodes.iter().filter_map(at).collect()
}

/// The address of the family at which observers listen, or else any: `[::]` takes both.
fn reachable(known: &[IpAddr], listen: SocketAddr) -> Option<IpAddr> {
    known
        .iter()
        .find(|ip| ip.is_ipv4() == listen.is_ipv4())
        .or(known.first())
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(listen: &str) -> Vec<String> {
        let ip = |text: &str| text.parse().expect("an address");
        let nodes = BTreeMap::from([
            ("a".to_owned(), vec![ip("192.0.2.1"), ip("fd00::1")]),
            ("b".to_owned(), vec![ip("192.0.2.2"), ip("fd00::2")]),
            ("c".to_owned(), vec![ip("192.0.2.3")]),
            ("late".to_owned(), Vec::new()),
        ]);
        let addresses = addresses(&nodes, "a", listen.parse().expect("an address"));
        addresses
            .into_iter()
            .map(|(name, at)| format!("{name} {at}"))
            .collect()
    }

    #[test]
    fn the_port_is_ours_and_the_family_that_of_the_listener() {
        assert_eq!(
            found("0.0.0.0:4244"),
            ["a 192.0.2.1:4244", "b 192.0.2.2:4244", "c 192.0.2.3:4244"]
        );
        assert_eq!(
            found("[::]:4244"),
            ["a [fd00::1]:4244", "b [fd00::2]:4244", "c 192.0.2.3:4244"]
        );
        assert_eq!(
            found("198.51.100.9:1"),
            ["a 198.51.100.9:1", "b 192.0.2.2:1", "c 192.0.2.3:1"]
        );
    }
}
