//! One reading of the kernel's state, and the questions about it.

use std::net::IpAddr;

use flannel_host::family::Family;
use flannel_netlink::{Address, Link, Netlink, NetlinkError, RouteType};
use ipnet::IpNet;

use super::{DefaultRoute, IfaceOptions, PodDevice, devices};

/// The state of the host that the selection is based on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// All links.
    pub links: Vec<Link>,
    /// All addresses, in kernel order.
    pub addresses: Vec<Address>,
    /// The default routes, of each family the one with the lowest metric first.
    pub defaults: Vec<DefaultRoute>,
    /// The pod networks.
    pub pods: Vec<IpNet>,
    /// The interface and source by which the address of `--iface-can-reach` is reached, if it is.
    pub reach: Option<Reach>,
}

impl Host {
    /// Reads what the choice by these options depends on.
    pub async fn read(
        netlink: &Netlink,
        families: &[Family],
        options: &IfaceOptions,
        pods: &[IpNet],
    ) -> Result<Self, NetlinkError> {
        let (links, addresses) = (netlink.links().await?, netlink.addresses().await?);
        let mut host = Self {
            links,
            addresses,
            pods: pods.to_vec(),
            ..Self::default()
        };
        for family in families {
            host.defaults
                .extend(DefaultRoute::read(netlink, *family).await?);
        }
        if let Some(target) = options.can_reach {
            host.reach = Reach::read(netlink, target, &host).await?;
        }
        Ok(host)
    }

    /// The same host with no other interface than this one, and the one it is a port of.
    pub(super) fn narrowed_to(&self, link: &Link) -> Self {
        let is_kept =
            |other: &&Link| other.index == link.index || Some(other.index) == link.controller;
        Self {
            links: self.links.iter().filter(is_kept).cloned().collect(),
            ..self.clone()
        }
    }

    /// The same host without interfaces that are down or have no carrier, and without their routes.
    pub(super) fn alive(&self) -> Self {
        let is_alive = |link: &&Link| link.up && link.running;
        let links: Vec<_> = self.links.iter().filter(is_alive).cloned().collect();
        let is_kept = |route: &DefaultRoute| links.iter().any(|link| link.index == route.ifindex);
        let defaults = self.defaults.iter().copied().filter(is_kept).collect();
        Self {
            links,
            defaults,
            ..self.clone()
        }
    }

    pub(super) fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// Returns the role of a link, if it carries pods or tunnels between nodes.
    pub(super) fn role(&self, link: &Link) -> Option<PodDevice> {
        devices::role(link, &self.links, &self.addresses, &self.pods)
    }

    pub(super) fn is_of_pods(&self, index: u32) -> bool {
        self.link(index)
            .is_some_and(|link| self.role(link).is_some())
    }

    /// The link that has an address: rather one that can be the external interface.
    pub(super) fn owner(&self, addr: IpAddr) -> Option<&Link> {
        devices::owner(addr, &self.links, &self.addresses, |link| {
            self.role(link).is_some()
        })
    }

    /// Returns true if a default route of each of these families leaves by the link.
    pub(super) fn has_defaults(&self, families: &[Family], index: u32) -> bool {
        let leaves = |family: &Family| {
            self.defaults
                .iter()
                .any(|route| route.family == *family && route.ifindex == index)
        };
        families.iter().all(leaves)
    }
}

/// By which interface, and from which of its addresses, packets to some address leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The interface.
    pub ifindex: u32,
    /// The address; `None` when the kernel names none.
    pub source: Option<IpAddr>,
}

impl Reach {
    async fn read(
        netlink: &Netlink,
        target: IpAddr,
        host: &Host,
    ) -> Result<Option<Self>, NetlinkError> {
        let answer = netlink.route_from_here(target).await?;
        Ok(match answer.kind {
            RouteType::Unicast => answer.oif.map(|ifindex| Self {
                ifindex,
                source: answer.src,
            }),
            // Our own address: packets to it take the loopback, and the interface meant is the one
            // that has it.
            RouteType::Local => host.owner(target).map(|link| Self {
                ifindex: link.index,
                source: Some(target),
            }),
            _ => None,
        })
    }
}
