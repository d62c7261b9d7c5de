//! The claims of a node: by its Node object, which its peers follow, and by its agent's status.

use std::net::IpAddr;

use flannel_host::family::Family;
use flannel_inspect::reported_cluster::subnets;
use flannel_status::{LeaseStatus, NetworkStatus, Status};
use flannel_store::{RawJson, VxlanData, config::BackendKind, tunnel_end};
use ipnet::IpNet;

use crate::records::NodeObject;

/// Annotations of each family: its public address, and the data of its tunnel's end.
const ANNOTATIONS: [(Family, &str, &str); 2] = [
    (Family::V4, "public-ip", "backend-data"),
    (Family::V6, "public-ipv6", "backend-v6-data"),
];

/// The facts by which other nodes reach a node in one family, according to its Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedEnd {
    /// The subnet of its pods.
    pub subnet: IpNet,
    /// Its public address.
    pub address: IpAddr,
    /// Its VTEP MAC or public key, if it has one.
    pub end: Option<String>,
    /// The VXLAN network identifier, if it publishes one.
    pub vni: Option<u32>,
}

impl PublishedEnd {
    /// Reads a Node. None of a node without flannel.
    pub fn of(node: &NodeObject) -> Vec<Self> {
        let subnets: Vec<IpNet> = node
            .subnets()
            .iter()
            .filter_map(|subnet| subnet.parse().ok())
            .collect();
        let read = |(family, address, data): (Family, &str, &str)| {
            // Unspecified for a family that is off.
            let address: IpAddr = node
                .annotation(address)?
                .parse()
                .ok()
                .filter(|ip: &IpAddr| !ip.is_unspecified())?;
            let subnet = *subnets
                .iter()
                .find(|subnet| Family::of(subnet.addr()) == family)?;
            let data = node
                .annotation(data)
                .and_then(|text| RawJson::parse("the annotation", text).ok());
            let vni = data
                .as_ref()
                .and_then(|data| VxlanData::parse(data).ok()?.vni);
            let end = data.as_ref().and_then(tunnel_end).map(|(_, end)| end);
            Some(Self {
                subnet,
                address,
                end,
                vni,
            })
        };
        ANNOTATIONS.into_iter().filter_map(read).collect()
    }
}

/// The backend of a lease or an annotation. Some backends have no name there.
fn backend(name: &str) -> Option<String> {
    let kind = BackendKind::of_lease(name).filter(|_| !name.is_empty())?;
    Some(kind.properties().type_name.to_owned())
}

/// The claims of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeClaims {
    /// The name of the Node.
    pub name: String,
    /// By its Node.
    pub published: Vec<PublishedEnd>,
    /// The subnets of its pods: by its agent, or else by its Node.
    pub subnets: Vec<IpNet>,
    /// Its public addresses: by its agent, or else by its Node.
    pub addresses: Vec<IpAddr>,
    /// True if an agent answered that has a lease.
    pub answered: bool,
    /// The type of its backend.
    pub backend: Option<String>,
    /// Its network, by its agent.
    pub network: Option<NetworkStatus>,
    /// The version of its agent.
    pub version: Option<String>,
    /// The mode that is asked for.
    pub mode: Option<String>,
    /// Seconds by which its clock is ahead of this machine's.
    pub clock: Option<i64>,
}

impl NodeClaims {
    /// The claims by only its Node.
    pub fn of_node(node: &NodeObject) -> Self {
        let backend = node.annotation("backend-type").unwrap_or_default();
        Self::of_published(node.metadata.name.clone(), PublishedEnd::of(node), backend)
    }

    /// The claims by what a node publishes in any store. `backend` is the name in a lease.
    pub fn of_published(name: String, published: Vec<PublishedEnd>, backend: &str) -> Self {
        Self {
            name,
            subnets: published.iter().map(|published| published.subnet).collect(),
            addresses: published
                .iter()
                .map(|published| published.address)
                .collect(),
            published,
            backend: self::backend(backend),
            ..Self::default()
        }
    }

    /// The same with the answer of its agent, which was asked between these two times, in seconds
    /// since 1970 UTC.
    #[must_use]
    pub fn with_answer(self, status: &Status, asked: [u64; 2]) -> Self {
        let Some(lease) = &status.lease else {
            return self;
        };
        Self {
            subnets: subnets(lease),
            addresses: addresses(lease),
            answered: true,
            backend: status
                .network
                .as_ref()
                .map(|network| network.backend.clone())
                .or(self.backend),
            network: status.network.clone(),
            version: Some(status.version.clone()),
            mode: Some(status.mode.wanted.clone()),
            clock: status.time.map(|time| ahead(time, asked)),
            ..self
        }
    }
}

fn addresses(lease: &LeaseStatus) -> Vec<IpAddr> {
    let texts = std::iter::once(&lease.public_ip).chain(&lease.public_ipv6);
    let mut addresses: Vec<IpAddr> = texts.filter_map(|text| text.parse().ok()).collect();
    addresses.dedup();
    addresses
}

/// Seconds by which a time is outside of the two between which it was read.
fn ahead(time: u64, [from, to]: [u64; 2]) -> i64 {
    let signed = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    if time > to {
        signed(time - to)
    } else {
        -signed(from.saturating_sub(time))
    }
}
