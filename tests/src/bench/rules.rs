//! The netfilter rules of a node with kube-proxy: what every packet of a flow meets, and what the
//! first one does.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::Result;

use super::plan::{Mode, Via};
use crate::{
    Node,
    load::rr::Protocol,
    service_rules::{Backend, Service, ServiceRules},
};

/// The number of Services on a node in addition to the measured one, each with two backends.
const OTHERS: u8 = 100;
/// The address of the Service that is measured, over TCP and UDP.
pub(super) const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 1, 1));

/// Writes the rules; the measured Service leads to `server`, and in some modes ports of the node
/// do.
pub(super) fn install(node: &Node, server: IpAddr, mode: Mode) -> Result<()> {
    let mut services = services(server);
    if mode.is_inward() {
        services.extend(node_ports(server));
    }
    ServiceRules::install(node, Backend::Iptables, "10.244.0.0/16".parse()?)?.set(&services)
}

/// Ports of the node, equal to those of the server.
fn node_ports(server: IpAddr) -> impl Iterator<Item = Service> {
    let numbered = (2..).zip(
        Via::ALL
            .into_iter()
            .flat_map(|via| [Protocol::Tcp, Protocol::Udp].map(|of| (via, of))),
    );
    numbered.map(move |(number, (via, protocol))| {
        let at = SocketAddr::from(([10, 96, 1, number], 80));
        Service::new(at, protocol, [SocketAddr::new(server, via.port())]).at_node_port(via.port())
    })
}

/// Returns all Services. The measured one comes last; the others receive no traffic.
fn services(server: IpAddr) -> Vec<Service> {
    let others = (1..=OTHERS).map(|number| {
        let backends = [200, 201].map(|subnet| SocketAddr::from(([10, 244, subnet, number], 8080)));
        Service::new(
            SocketAddr::from(([10, 96, 0, number], 80)),
            Protocol::Tcp,
            backends,
        )
    });
    let measured = [Protocol::Tcp, Protocol::Udp].map(|protocol| {
        let port = Via::Service.port();
        Service::new(
            SocketAddr::new(SERVICE, port),
            protocol,
            [SocketAddr::new(server, port)],
        )
    });
    others.chain(measured).collect()
}
