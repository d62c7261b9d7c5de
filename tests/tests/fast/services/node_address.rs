//! Services and pods reached by a node's address, and what pods reach outside the cluster by it.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use flannel_tests::{
    Host,
    fast::{Family, PORT},
    load::rr::Protocol,
    no_agent::Talk,
    service_rules::{Backend, Service},
};

use super::service_lab::ServiceLab;

const NODE_PORT: u16 = 30_080;
const HOST_PORT: u16 = 8081;

/// A Service on `far` by the address of either node, from a pod and from a host that is none of the
/// cluster's pods.
pub(crate) fn node_ports(lab: &ServiceLab, mode: &str, family: Family) -> Result<()> {
    let backend = family.end(&lab.far)?;
    let service = Service::new(family.service(1), Protocol::Tcp, [backend]).at_node_port(NODE_PORT);
    lab.set_services(family, &[service])?;
    let nodes = &lab.nodes;
    let (near, outside): (&Host, &Host) = (&lab.near, &nodes.b);
    // By its own node a pod's packets cross the tunnel; by another one they leave the cluster
    // before. A host's do not come from a pod: only the backend's node has both ends of the
    // stretch.
    for (from, node, by) in [
        (near, 11, [true; 2]),
        (near, 12, [false; 2]),
        (outside, 11, [false, true]),
    ] {
        let to = SocketAddr::new(family.host(node), NODE_PORT);
        let mut talk = Talk::open(from, &lab.far, backend, Some(to))?;
        lab.carried(mode, by, |messages| talk.exchange(messages))?;
    }
    Ok(())
}

/// A pod's port of its node, as the plugin `portmap` makes it.
pub(crate) fn host_port(lab: &ServiceLab, mode: &str, family: Family) -> Result<()> {
    let pod = family.end(&lab.near)?;
    let node = &lab.nodes.a;
    let (v4, to) = (
        family == Family::V4,
        SocketAddr::new(family.host(11), HOST_PORT),
    );
    let remove = match lab.backend {
        Backend::Iptables => {
            let tool = if v4 {
                "iptables-legacy"
            } else {
                "ip6tables-legacy"
            };
            let rule = format!(
                "PREROUTING -m addrtype --dst-type LOCAL -p tcp --dport {HOST_PORT} -j DNAT \
                 --to-destination {pod}"
            );
            node.sh(&format!("{tool} -w -t nat -A {rule}"))?;
            format!("{tool} -w -t nat -D {rule}")
        }
        Backend::Nftables => {
            let name = if v4 {
                "ip host-ports"
            } else {
                "ip6 host-ports"
            };
            let hook = "type nat hook prerouting priority dstnat;";
            let rule = format!("fib daddr type local tcp dport {HOST_PORT} dnat to {pod}");
            let script = format!("table {name} {{\nchain hostports {{\n{hook}\n{rule}\n}}\n}}");
            node.nft(&script)?;
            format!("nft delete table {name}")
        }
    };
    for (from, by) in [(&lab.beside, [true, false]), (&lab.far, [false; 2])] {
        let mut talk = Talk::open(from, &lab.near, pod, Some(to))?;
        lab.carried(mode, by, |messages| talk.exchange(messages))?;
    }
    node.sh(&remove).map(drop)
}

/// A pod to a host outside the cluster's network, which sees the node's address.
pub(crate) fn outside(lab: &ServiceLab, mode: &str, family: Family) -> Result<()> {
    let at = SocketAddr::new(family.host(12), PORT);
    let mut talk = Talk::open(&lab.near, &lab.nodes.b, at, None)?;
    let seen = talk.server.peer_addr()?.ip();
    ensure!(seen == family.host(11), "a pod was seen as {seen}");
    lab.carried(mode, [false; 2], |messages| talk.exchange(messages))
}
