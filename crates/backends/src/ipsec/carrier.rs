//! The policies of IPsec, as carriers of packets.

use std::{net::IpAddr, path::Path};

use flannel_backend_api::{Carrier, CarrierState};
use flannel_netlink::{Netlink, NetlinkError, PolicyDirection};
use ipnet::IpNet;

use super::recorded_network;

/// The part that findings name.
pub(crate) const PART: &str = "policy";

/// A policy for the packet.
struct Found {
    /// The node to which it sends encrypted packets.
    to: IpAddr,
    /// True if there is an association with that node's keys.
    has_keys: bool,
}

/// Reads the policies for packets between two addresses. None if the destination is not in the pod
/// network of a node with this backend.
pub(crate) async fn carrier(
    netlink: &Netlink,
    [source, destination]: [IpAddr; 2],
    state_dir: &Path,
) -> Result<Option<Carrier>, NetlinkError> {
    let network = recorded_network(state_dir).map(IpNet::from);
    if !network.is_some_and(|network| network.contains(&destination)) {
        return Ok(None);
    }
    let associations = netlink.tunnel_associations().await?;
    let covers = |src: &IpNet, dst: &IpNet| src.contains(&source) && dst.contains(&destination);
    let policies = netlink.tunnel_policies().await?;
    let mut out = policies
        .iter()
        .filter(|(key, _)| key.direction == PolicyDirection::Out);
    let policy = out.find(|(key, _)| covers(&key.src, &key.dst));
    let found = policy.map(|(_, policy)| Found {
        to: policy.dst,
        has_keys: associations
            .iter()
            .any(|association| association.serves(policy)),
    });
    Ok(Some(judged(found.as_ref(), destination)))
}

fn judged(found: Option<&Found>, destination: IpAddr) -> Carrier {
    let (state, text) = match found {
        None => (
            CarrierState::Repairable,
            format!("no IPsec policy covers {destination}: packets leave without a tunnel"),
        ),
        Some(Found { to, has_keys: true }) => (
            CarrierState::Carries,
            format!("packets are encrypted for the node {to}"),
        ),
        Some(Found { to, .. }) => (
            CarrierState::Lost,
            format!(
                "there are no keys with the node {to}, so the kernel drops packets to it: see the \
                 line ipsec of `flannel-agent status`"
            ),
        ),
    };
    Carrier {
        part: PART,
        state,
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_carries_once_there_are_keys() {
        let ip = |text: &str| text.parse().expect("an address");
        let state = |has_keys: Option<bool>| {
            let found = has_keys.map(|has_keys| Found {
                to: ip("192.0.2.9"),
                has_keys,
            });
            judged(found.as_ref(), ip("10.244.2.9")).state
        };
        assert_eq!(state(None), CarrierState::Repairable);
        assert_eq!(state(Some(true)), CarrierState::Carries);
        assert_eq!(state(Some(false)), CarrierState::Lost);
    }
}
