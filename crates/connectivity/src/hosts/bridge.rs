//! The bridge of this host's containers, and free addresses on it.

use std::{
    net::{IpAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, bail};
use flannel_netlink::{Address, Link, NeighbourKey, Netlink};
use flannel_subnet_env::SubnetFile;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tokio::time::{Instant, sleep};

/// The kind of the device.
const BRIDGE: &str = "bridge";
/// Addresses that are tried before the subnet counts as full.
const TRIES: usize = 32;
/// For an answer to ARP or neighbour discovery, from a container on this host.
const ANSWER: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(50);
/// The port of datagrams that only make the kernel resolve an address: discard.
const DISCARD: u16 = 9;

/// The bridge of containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerBridge {
    /// Its index.
    pub(super) index: u32,
    /// Its addresses in this host's subnets, which are the gateways of containers.
    pub(super) gateways: Vec<IpNet>,
}

impl ContainerBridge {
    /// Finds the one with an address of this host's subnet; of the name, if one is given.
    pub(super) async fn find(
        netlink: &Netlink,
        subnets: &SubnetFile,
        name: Option<&str>,
    ) -> anyhow::Result<Self> {
        let (links, addresses) = (netlink.links().await?, netlink.addresses().await?);
        choose(&links, &addresses, &ours(subnets), name)
    }

    /// Finds addresses for a number of namespaces, of each family that the bridge has. They are the
    /// last ones of the subnet, which container runtimes give out last.
    pub(super) async fn free_addresses(
        &self,
        netlink: &Netlink,
        number: usize,
    ) -> anyhow::Result<Vec<Vec<IpNet>>> {
        let mut found = vec![Vec::new(); number];
        for gateway in &self.gateways {
            let mut places = found.iter_mut();
            let mut place = places.next();
            for candidate in candidates(*gateway) {
                let Some(addresses) = place.as_mut() else {
                    break;
                };
                if !self.is_taken(netlink, candidate).await? {
                    addresses.push(IpNet::new(candidate, gateway.prefix_len())?);
                    place = places.next();
                }
            }
            if place.is_some() {
                bail!(
                    "the last {TRIES} addresses of {} are in use",
                    gateway.trunc()
                );
            }
        }
        Ok(found)
    }

    /// Returns true if something on the bridge answers for the address.
    async fn is_taken(&self, netlink: &Netlink, address: IpAddr) -> anyhow::Result<bool> {
        let any: IpAddr = if address.is_ipv4() {
            [0; 4].into()
        } else {
            [0_u16; 8].into()
        };
        let socket = UdpSocket::bind((any, 0)).context("cannot open a socket")?;
        // It need not arrive; a refusal shows in the neighbour's state.
        let _ = socket.send_to(&[0], (address, DISCARD));
        let (key, deadline) = (
            NeighbourKey {
                ifindex: self.index,
                addr: address,
            },
            Instant::now() + ANSWER,
        );
        loop {
            match netlink.neighbour(key).await? {
                Some(neighbour) if neighbour.failed => return Ok(false),
                Some(neighbour) if neighbour.mac.is_some() => return Ok(true),
                _ if Instant::now() >= deadline => return Ok(false),
                _ => sleep(PERIOD).await,
            }
        }
    }
}

/// This host's subnets, as the file has them.
fn ours(subnets: &SubnetFile) -> Vec<IpNet> {
    let v4 = subnets
        .v4
        .subnet
        .as_ref()
        .map(Ipv4Net::trunc)
        .map(IpNet::from);
    v4.into_iter()
        .chain(
            subnets
                .v6
                .subnet
                .as_ref()
                .map(Ipv6Net::trunc)
                .map(IpNet::from),
        )
        .collect()
}

fn choose(
    links: &[Link],
    addresses: &[Address],
    subnets: &[IpNet],
    name: Option<&str>,
) -> anyhow::Result<ContainerBridge> {
    let is_wanted = |link: &&Link| {
        link.kind.as_deref() == Some(BRIDGE) && name.is_none_or(|name| name == link.name)
    };
    let gateways = |link: &Link| -> Vec<IpNet> {
        let of_link = addresses
            .iter()
            .map(|address| address.key)
            .filter(|key| key.ifindex == link.index);
        let inside = of_link.filter_map(|key| {
            let subnet = subnets.iter().find(|subnet| subnet.contains(&key.addr))?;
            IpNet::new(key.addr, subnet.prefix_len()).ok()
        });
        inside.collect()
    };
    let found = links.iter().filter(is_wanted).map(|link| ContainerBridge {
        index: link.index,
        gateways: gateways(link),
    });
    found
        .max_by_key(|bridge| bridge.gateways.len())
        .filter(|bridge| !bridge.gateways.is_empty())
        .with_context(|| {
            let subnets: Vec<_> = subnets.iter().map(ToString::to_string).collect();
            let bridge = name.map_or_else(
                || {
                    "no bridge of this \
            host"
                        .to_owned()
                },
                |name| format!("no bridge {name}"),
            );
            format!(
                "{bridge} has an address of its subnet, {}: start a container on the pod network \
             first, or name the bridge \
             by --bridge",
                subnets.join(" and ")
            )
        })
}

/// Addresses of the gateway's network from its end, without the gateway.
fn candidates(gateway: IpNet) -> Vec<IpAddr> {
    let is_free = |address: &IpAddr| *address != gateway.addr();
    match gateway {
        IpNet::V4(net) => net
            .hosts()
            .rev()
            .map(IpAddr::from)
            .filter(is_free)
            .take(TRIES)
            .collect(),
        IpNet::V6(net) => net
            .hosts()
            .rev()
            .map(IpAddr::from)
            .filter(is_free)
            .take(TRIES)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use flannel_netlink::{AddressFlags, AddressKey, AddressScope};

    use super::*;

    fn bridge(index: u32, name: &str) -> Link {
        Link {
            kind: Some(BRIDGE.to_owned()),
            ..Link::ethernet(index, name, 1450)
        }
    }

    fn address(ifindex: u32, addr: &str) -> Address {
        let key = AddressKey {
            ifindex,
            addr: addr.parse().expect("an address"),
            prefix_len: 24,
        };
        Address {
            key,
            scope: AddressScope::Universe,
            flags: AddressFlags::Permanent,
        }
    }

    #[test]
    fn the_bridge_is_the_one_with_addresses_of_the_subnets() {
        let subnets: Vec<IpNet> = ["10.1.2.0/24", "fd00:2::/64"]
            .map(|net| net.parse().expect("a net"))
            .to_vec();
        let links = [
            Link::ethernet(1, "eth0", 1500),
            bridge(2, "virbr0"),
            bridge(3, "docker0"),
            bridge(4, "br4"),
        ];
        let addresses = [
            address(1, "10.1.2.9"),
            address(2, "192.168.122.1"),
            address(3, "10.1.2.1"),
            address(3, "fd00:2::1"),
            address(4, "10.1.2.7"),
        ];
        let found = choose(&links, &addresses, &subnets, None).expect("a bridge");
        assert_eq!((found.index, found.gateways.len()), (3, 2));
        assert_eq!(
            found.gateways[1].to_string(),
            "fd00:2::1/64",
            "with the length of the subnet"
        );
        assert_eq!(
            choose(&links, &addresses, &subnets, Some("br4"))
                .expect("br4")
                .index,
            4
        );
        let error = choose(&links, &addresses, &subnets, Some("virbr0"))
            .expect_err("no address")
            .to_string();
        assert!(
            error.starts_with(
                "no bridge virbr0 has an address of its subnet, 10.1.2.0/24 and fd00:2::/64: "
            ),
            "{error}"
        );
    }

    #[test]
    fn addresses_are_taken_from_the_end() {
        let first = |net: &str| {
            candidates(net.parse().expect("a net"))[..2]
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        let firsts: Vec<Vec<String>> = ["10.1.2.1/24", "10.1.2.254/24", "fd00:2::1/64"]
            .map(first)
            .to_vec();
        assert_eq!(firsts[0], ["10.1.2.254", "10.1.2.253"]);
        assert_eq!(firsts[1], ["10.1.2.253", "10.1.2.252"]);
        assert_eq!(
            firsts[2],
            ["fd00:2::ffff:ffff:ffff:ffff", "fd00:2::ffff:ffff:ffff:fffe"]
        );
    }
}
