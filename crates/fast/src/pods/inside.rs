//! The inside of pods' network namespaces: the pods' ends of their veths, and devices behind these.
//!
//! The agent does not enter the namespaces: the kernel lists the links of a namespace by its number
//! in this namespace, which a veth shows ([`Link::netns`]). One list serves all veths that lead
//! into the namespace.

use std::collections::{BTreeMap, BTreeSet};

use flannel_netlink::{Link, Netlink, NetlinkError};
use futures::future::join_all;

/// The relevant contents of the namespace that a veth leads into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inside {
    /// The other end of the veth; `None` where it cannot be read.
    pub(super) end: Option<Link>,
    /// Names of the devices by which packets may leave the pod again: all that are up, but for
    /// loopback and that end. `None` where they cannot be read.
    pub(super) devices: Option<Vec<String>>,
}

impl Inside {
    /// Of a veth into a namespace with these links.
    fn of(veth: &Link, links: &[Link]) -> Self {
        let is_end = |link: &Link| Some(link.index) == veth.lower;
        let others = links
            .iter()
            .filter(|link| link.up && !link.loopback && !is_end(link));
        Self {
            end: links.iter().find(|link| is_end(link)).cloned(),
            devices: Some(others.map(|link| link.name.clone()).collect()),
        }
    }
}

/// Reads the namespaces that these veths lead into, all at once. A namespace that cannot be read
/// does not affect the others.
pub(super) async fn read(netlink: &Netlink, veths: &[&Link]) -> BTreeMap<u32, Inside> {
    let namespaces: BTreeSet<i32> = veths.iter().filter_map(|veth| veth.netns).collect();
    let lists = join_all(
        namespaces
            .iter()
            .map(|netns| async { (*netns, netlink.links_of(*netns).await) }),
    )
    .await;
    let lists: BTreeMap<i32, Vec<Link>> = lists
        .into_iter()
        .filter_map(|(netns, links)| Some((netns, readable(links)?)))
        .collect();
    let list_of = |veth: &Link| lists.get(&veth.netns?);
    let known = veths
        .iter()
        .filter_map(|veth| Some((veth.index, Inside::of(veth, list_of(veth)?))));
    let unlisted = veths.iter().filter(|veth| list_of(veth).is_none());
    let alone =
        join_all(unlisted.map(|veth| async { (veth.index, end(netlink, veth).await) })).await;
    known.chain(alone).collect()
}

/// Reads only the other end, for a namespace without a number here or without a list of its links.
async fn end(netlink: &Netlink, veth: &Link) -> Inside {
    Inside {
        end: readable(netlink.link_peer(veth).await),
        devices: None,
    }
}

fn readable<T>(answer: Result<Option<T>, NetlinkError>) -> Option<T> {
    answer.unwrap_or_else(|error| {
        tracing::debug!(%error, "a pod's network namespace is not known");
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str) -> Link {
        Link::ethernet(index, name, 1450)
    }

    fn veth(lower: u32) -> Link {
        Link {
            lower: Some(lower),
            netns: Some(0),
            ..link(7, "veth1")
        }
    }

    #[test]
    fn loopback_and_the_pod_s_own_end_are_no_devices_behind_it() {
        let loopback = Link {
            loopback: true,
            ..link(1, "lo")
        };
        let inside = Inside::of(&veth(2), &[loopback, link(2, "eth0")]);
        assert_eq!(
            inside,
            Inside {
                end: Some(link(2, "eth0")),
                devices: Some(Vec::new())
            }
        );
    }

    /// The kernel makes `tunl0` and its like in every namespace, down (`ipip_init_net()` in
    /// [net/ipv4/ipip.c, Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/ipip.c)).
    #[test]
    fn devices_that_are_up_are_behind_the_pod_s_own_end() {
        let tunnel = Link {
            up: false,
            ..link(3, "tunl0")
        };
        let inside = Inside::of(
            &veth(2),
            &[
                link(2, "eth0"),
                tunnel,
                link(4, "tap0"),
                link(5, "k6t-eth0"),
            ],
        );
        assert_eq!(
            inside.devices,
            Some(vec!["tap0".to_owned(), "k6t-eth0".to_owned()])
        );
    }

    #[test]
    fn an_end_that_is_gone_is_none() {
        assert_eq!(Inside::of(&veth(9), &[link(2, "eth0")]).end, None);
    }
}
