//! Subnets that this node had and has no more, while its pods still have addresses of them: seen by
//! the prefix of their bridge. Packets of other nodes to such a pod go to the node that has the
//! subnet now. Pure.

use std::fmt;

use flannel_host::family::Family;
use flannel_store::LeaseKey;
use ipnet::IpNet;

use super::host_addresses::HostPrefix;

/// A prefix of a bridge outside of this node's subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LostSubnet {
    device: String,
    address: IpNet,
    own: IpNet,
    /// The lease of another node that has it.
    holder: Option<String>,
}

impl fmt::Display for LostSubnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            device,
            address,
            own,
            holder,
        } = self;
        write!(
            f,
            "{device} has {address}, which is not in this node's subnet {own}"
        )?;
        if let Some(holder) = holder {
            write!(f, " and is that of lease {holder}")?;
        }
        write!(
            f,
            ": pods with addresses of {} are not reached from other nodes; delete those pods, then \
             the address ({device})",
            address.trunc()
        )
    }
}

/// Finds them among the prefixes of this host that are in a pod network. `external` is the external
/// interface, whose address may be there; `holder` names the lease of another node that overlaps a
/// subnet. A device that is not a bridge counts only if there is one.
pub(super) fn find(
    prefixes: &[HostPrefix],
    own: LeaseKey,
    external: u32,
    holder: impl Fn(IpNet) -> Option<String>,
) -> Vec<LostSubnet> {
    let lost = |prefix: &HostPrefix| {
        let address = prefix.address;
        let own = own.subnet(Family::of(address.addr()))?;
        let is_ours = own.contains(&address.addr()) || address.contains(&own.addr());
        if is_ours || prefix.index == external {
            return None;
        }
        let holder = holder(address.trunc());
        (prefix.is_bridge || holder.is_some()).then(|| LostSubnet {
            device: prefix.device.clone(),
            address,
            own,
            holder,
        })
    };
    prefixes.iter().filter_map(lost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(device: &str, index: u32, is_bridge: bool, address: &str) -> HostPrefix {
        HostPrefix {
            device: device.to_owned(),
            index,
            is_bridge,
            address: address.parse().expect("an address"),
        }
    }

    #[test]
    fn a_bridge_outside_of_our_subnet_is_named_with_the_lease_that_has_its_prefix() {
        let own: LeaseKey = "10.244.9.0-24".parse().expect("a key");
        let found = |prefixes: &[HostPrefix]| {
            let holder = |subnet: IpNet| {
                (subnet.to_string() == "10.244.7.0/24").then(|| "10.244.7.0-24".to_owned())
            };
            find(prefixes, own, 2, holder)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        let text = found(&[prefix("cni0", 5, true, "10.244.7.1/24")]).concat();
        assert!(
            text.starts_with(
                "cni0 has 10.244.7.1/24, which is not in this node's subnet 10.244.9.0/24 and is \
                 that of lease 10.244.7.0-24: \
                 pods with addresses of 10.244.7.0/24 are not reached"
            ),
            "{text}"
        );
        assert_eq!(
            found(&[prefix("cni0", 5, true, "10.244.8.1/24")]).len(),
            1,
            "no node has it"
        );
        assert_eq!(
            found(&[prefix("eth1", 6, false, "10.244.7.1/24")]).len(),
            1,
            "another device in a peer's subnet"
        );
        for fine in [
            prefix("cni0", 5, true, "10.244.9.1/24"),
            prefix("br0", 2, true, "10.244.8.1/24"),
            prefix("eth1", 6, false, "10.244.8.1/24"),
            prefix("br1", 7, true, "fd00::1/64"),
        ] {
            assert_eq!(found(std::slice::from_ref(&fine)), [""; 0], "{fine:?}");
        }
    }
}
