//! The names of nodes by the subnets and addresses that agents know. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use crate::{compare::PublishedEnd, members::ClusterNode};

/// The nodes that the API server lists.
#[derive(Clone, Debug, Default)]
pub struct NodeNames {
    by_subnet: BTreeMap<IpNet, String>,
    by_address: BTreeMap<IpAddr, String>,
}

impl NodeNames {
    /// The names of these nodes.
    pub fn new(members: &[ClusterNode]) -> Self {
        let mut names = Self::default();
        for member in members {
            let name = member.name();
            let subnets = member
                .node
                .subnets()
                .into_iter()
                .filter_map(|subnet| subnet.parse().ok());
            names
                .by_subnet
                .extend(subnets.map(|subnet: IpNet| (subnet.trunc(), name.to_owned())));
            let published = PublishedEnd::of(&member.node)
                .into_iter()
                .map(|end| end.address);
            let internal = member
                .node
                .internal_addresses()
                .filter_map(|address| address.parse().ok());
            names.by_address.extend(
                published
                    .chain(internal)
                    .map(|address| (address, name.to_owned())),
            );
        }
        names
    }

    /// The name of a peer; its address if no node has its subnet or its address.
    pub fn of_peer(&self, subnet: &str, address: &str) -> String {
        let by_subnet = subnet
            .parse::<IpNet>()
            .ok()
            .and_then(|subnet| self.by_subnet.get(&subnet.trunc()));
        let by_address = || {
            address
                .parse()
                .ok()
                .and_then(|address: IpAddr| self.by_address.get(&address))
        };
        by_subnet
            .or_else(by_address)
            .cloned()
            .unwrap_or_else(|| address.to_owned())
    }
}
