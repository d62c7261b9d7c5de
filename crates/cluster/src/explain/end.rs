//! An end of a packet's way: the pod, its addresses, and the node on which it is.

use std::{convert::Infallible, fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use kube::core::{params::GetParams, request::Request};
use serde::Serialize;

use crate::{
    client::ClusterClient,
    error::ClusterError,
    members::{AgentPods, ClusterNode},
    progress::Progress,
    records::PodObject,
    report::ClusterReport,
};

/// An end as an operator names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketEndName {
    /// A pod.
    Pod {
        /// Its namespace, if it is named.
        namespace: Option<String>,
        /// Its name.
        name: String,
    },
    /// An address.
    Address(IpAddr),
}

impl FromStr for PacketEndName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        Ok(match text.split_once('/') {
            Some((namespace, name)) => Self::Pod {
                namespace: Some(namespace.to_owned()),
                name: name.to_owned(),
            },
            None => Self::Pod {
                namespace: None,
                name: text.to_owned(),
            },
        })
    }
}

impl PacketEndName {
    /// The same with a namespace for a pod that has none.
    #[must_use]
    pub fn or_in(self, default: &str) -> Self {
        match self {
            Self::Pod {
                namespace: None,
                name,
            } => Self::Pod {
                namespace: Some(default.to_owned()),
                name,
            },
            named => named,
        }
    }
}

/// An end with the address that the packet has there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PacketEnd {
    /// Namespace and name of the pod; absent if an address was given.
    pub pod: Option<String>,
    /// Its address.
    pub address: IpAddr,
    /// The name of its node.
    pub node: String,
    /// True if the address is one of the node, because the pod is in the node's network
    /// (`hostNetwork`).
    pub host_network: bool,
}

impl fmt::Display for PacketEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pod {
            Some(pod) => write!(f, "{pod} ({})", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

/// An end that cannot be found, or a pair without a family in common.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The API server does not answer, or has no such pod.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The pod has no address now.
    #[error("pod {pod} has no {lacking}: {problem}")]
    NotUp {
        /// Namespace and name.
        pod: String,
        /// The part that it does not have: a node or an address.
        lacking: &'static str,
        /// Its state.
        problem: String,
    },
    /// The pod has ended, and another may have its address.
    #[error("pod {pod} has ended: {problem}")]
    Ended {
        /// Namespace and name.
        pod: String,
        /// Its state.
        problem: String,
    },
    /// No node has the address.
    #[error(
        "{0} is neither in the subnet of a node nor the address of one; name a pod or the address \
         of a pod, and for a \
         Service a pod behind it"
    )]
    Elsewhere(IpAddr),
    /// The addresses of both ends are of different families.
    #[error("{source_end} and {destination_end} have no addresses of one family")]
    Families {
        /// The sender's addresses.
        source_end: String,
        /// The receiver's addresses.
        destination_end: String,
    },
}

/// An end with all of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundEnd {
    pod: Option<String>,
    node: String,
    addresses: Vec<IpAddr>,
    host_network: bool,
}

impl FoundEnd {
    /// Finds an end.
    pub(super) async fn find(
        client: &ClusterClient,
        pods: &AgentPods,
        members: &[ClusterNode],
        name: &PacketEndName,
        progress: &mut Progress,
    ) -> Result<Self, EndError> {
        match name {
            PacketEndName::Pod { namespace, name } => {
                let namespace = namespace.as_deref().unwrap_or("default");
                let what = format!("looking for the pod {namespace}/{name}");
                let request = Request::new(format!("/api/v1/namespaces/{namespace}/pods"));
                let pod: PodObject = client
                    .call(&what, request.get(name, &GetParams::default()))
                    .await?;
                Self::of_pod(format!("{namespace}/{name}"), &pod)
            }
            PacketEndName::Address(address) => {
                if let Some(found) = Self::of_address(*address, members) {
                    return Ok(found);
                }
                // Nodes without a pod CIDR: their agents have leases.
                let report = ClusterReport::ask(client, pods, progress, None).await?;
                let has_it =
                    |subnets: &[String]| subnets.iter().any(|subnet| contains(subnet, *address));
                let node = report.nodes.iter().find(|node| has_it(&node.subnets));
                let node = node.ok_or(EndError::Elsewhere(*address))?.name.clone();
                Ok(Self {
                    pod: None,
                    node,
                    addresses: vec![*address],
                    host_network: false,
                })
            }
        }
    }

    fn of_pod(name: String, pod: &PodObject) -> Result<Self, EndError> {
        if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            return Err(EndError::Ended {
                pod: name,
                problem: pod.problem(),
            });
        }
        let node = pod.spec.node_name.clone();
        let addresses: Vec<IpAddr> = pod
            .addresses()
            .iter()
            .filter_map(|address| address.parse().ok())
            .collect();
        let lacking = match (node.is_empty(), addresses.is_empty()) {
            (true, _) => "node",
            (false, true) => "address",
            (false, false) => {
                return Ok(Self {
                    pod: Some(name),
                    node,
                    addresses,
                    host_network: pod.spec.host_network,
                });
            }
        };
        Err(EndError::NotUp {
            pod: name,
            lacking,
            problem: pod.problem(),
        })
    }

    /// The end of an address, by the Nodes.
    fn of_address(address: IpAddr, members: &[ClusterNode]) -> Option<Self> {
        let of_subnet = |member: &&ClusterNode| {
            member
                .node
                .subnets()
                .iter()
                .any(|subnet| contains(subnet, address))
        };
        let of_host = |member: &&ClusterNode| {
            member
                .node
                .internal_addresses()
                .any(|own| own.parse() == Ok(address))
        };
        let found = |member: &ClusterNode, host_network| Self {
            pod: None,
            node: member.name().to_owned(),
            addresses: vec![address],
            host_network,
        };
        let in_subnet = members
            .iter()
            .find(of_subnet)
            .map(|member| found(member, false));
        in_subnet.or_else(|| {
            members
                .iter()
                .find(of_host)
                .map(|member| found(member, true))
        })
    }

    fn with(&self, address: IpAddr) -> PacketEnd {
        PacketEnd {
            pod: self.pod.clone(),
            address,
            node: self.node.clone(),
            host_network: self.host_network,
        }
    }

    fn text(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let addresses = addresses.join(", ");
        self.pod
            .as_ref()
            .map_or_else(|| addresses.clone(), |pod| format!("{pod} ({addresses})"))
    }
}

/// Chooses the addresses: the source's first one for which the destination has one of its family.
pub(super) fn of_one_family(
    source: &FoundEnd,
    destination: &FoundEnd,
) -> Result<(PacketEnd, PacketEnd), EndError> {
    let pairs = source.addresses.iter().filter_map(|from| {
        let to = destination
            .addresses
            .iter()
            .find(|to| to.is_ipv4() == from.is_ipv4())?;
        Some((source.with(*from), destination.with(*to)))
    });
    let none = || EndError::Families {
        source_end: source.text(),
        destination_end: destination.text(),
    };
    pairs.into_iter().next().ok_or_else(none)
}

fn contains(subnet: &str, address: IpAddr) -> bool {
    subnet
        .parse::<IpNet>()
        .is_ok_and(|subnet| subnet.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(addresses: &[&str]) -> FoundEnd {
        let addresses = addresses
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect();
        FoundEnd {
            pod: None,
            node: "n1".to_owned(),
            addresses,
            host_network: false,
        }
    }

    #[test]
    fn a_name_is_an_address_or_a_pod_in_a_namespace() {
        let name = |text: &str| {
            text.parse::<PacketEndName>()
                .expect("a name")
                .or_in("default")
        };
        let pod = |namespace: &str, name: &str| PacketEndName::Pod {
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        };
        assert_eq!(
            name("fd00::7"),
            PacketEndName::Address("fd00::7".parse().expect("an address"))
        );
        assert_eq!(
            (name("web"), name("shop/web")),
            (pod("default", "web"), pod("shop", "web"))
        );
    }

    #[test]
    fn the_destination_has_an_address_of_the_source_s_family() {
        let both = end(&["10.244.1.5", "fd00:1::5"]);
        let chosen = |source: &FoundEnd, destination: &FoundEnd| {
            let (source, destination) = of_one_family(source, destination).expect("a family");
            (source.address.to_string(), destination.address.to_string())
        };
        let expected =
            |source: &str, destination: &str| (source.to_owned(), destination.to_owned());
        let dual = end(&["fd00:2::7", "10.244.2.7"]);
        assert_eq!(chosen(&both, &dual), expected("10.244.1.5", "10.244.2.7"));
        assert_eq!(
            chosen(&both, &end(&["fd00:2::7"])),
            expected("fd00:1::5", "fd00:2::7")
        );
        let error =
            of_one_family(&end(&["10.244.1.5"]), &end(&["fd00:2::7"])).expect_err("no family");
        assert_eq!(
            error.to_string(),
            "10.244.1.5 and fd00:2::7 have no addresses of one family"
        );
    }

    #[test]
    fn a_pod_without_an_address_is_named_with_its_state() {
        let found = |spec: serde_json::Value, status: serde_json::Value| {
            let pod =
                serde_json::json!({ "metadata": { "name": "p" }, "spec": spec, "status": status });
            let pod: PodObject = serde_json::from_value(pod).expect("a pod");
            FoundEnd::of_pod("default/p".to_owned(), &pod).map_err(|error| error.to_string())
        };
        let (none, node) = (
            serde_json::json!({}),
            serde_json::json!({ "nodeName": "n1" }),
        );
        let pending = serde_json::json!({ "phase": "Pending" });
        assert_eq!(
            found(none, pending.clone()),
            Err("pod default/p has no node: Pending".to_owned())
        );
        assert_eq!(
            found(node.clone(), pending),
            Err("pod default/p has no address: Pending".to_owned())
        );
        let ended = serde_json::json!({ "phase": "Succeeded", "podIP": "10.244.1.5" });
        assert_eq!(
            found(node, ended),
            Err("pod default/p has ended: Succeeded".to_owned())
        );
    }
}
