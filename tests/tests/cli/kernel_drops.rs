//! Packets of pods that the kernel drops, as followers of flows and clients of Hubble see them.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, ensure};
use flannel_hubble::{
    flow::{DropReason, Flow, FlowFilter, Verdict},
    observer::GetFlowsRequest,
};
use flannel_tests::{
    Host, Node,
    fast::{Family, FastLab},
};
use serde_json::Value;

use super::{
    flows::Follower,
    hubble::{SOCKET, first_flow},
};

/// Ports of the packets that are dropped, one for each way to drop them.
const BY_NFT: u16 = 7001;
const BY_LEGACY: u16 = 7002;
const OF_THE_HOST: u16 = 7003;
const ELSEWHERE: u16 = 7004;

/// A host that no route leads to.
const UNREACHABLE: &str = "198.51.100.9";

/// Sends a datagram, which may be refused at once.
fn send(from: &Host, to: SocketAddr) -> Result<()> {
    let script = format!("printf x > /dev/udp/{}/{} || true", to.ip(), to.port());
    from.run(["bash", "-c", &script]).map(drop)
}

/// A policy as an engine would write it, on the way from pods and from the host.
fn install(node: &Node, family: Family, pod: IpAddr) -> Result<()> {
    let nft = family.nft();
    let drop = |chain, port| format!("{nft} daddr {pod} udp dport {port} drop comment \"{chain}\"");
    node.nft(&format!(
        "table inet policy_{nft} {{ \
         chain pods {{ type filter hook forward priority 10; {}; }}; \
         chain host {{ type filter hook output priority 10; {}; }}; }}",
        drop("pods", BY_NFT),
        drop("host", OF_THE_HOST)
    ))?;
    node.sh(&format!(
        "{} -I FORWARD -d {pod} -p udp --dport {BY_LEGACY} -j DROP",
        family.iptables()
    ))?;
    Ok(())
}

fn drop_at(follower: &Follower, to: SocketAddr) -> Result<Value> {
    let (address, port) = (to.ip().to_string(), to.port());
    follower.event(|event| {
        let end = &event["to"];
        event["event"] == "dropped" && end["address"] == address.as_str() && end["port"] == port
    })
}

fn drops_of_rules_are_seen(lab: &FastLab, follower: &Follower, family: Family) -> Result<()> {
    let pod = family.of(&lab.far)?;
    install(&lab.nodes.a, family, pod)?;
    // In the network namespace of another node, with the same kernel.
    install(&lab.nodes.b, family, family.of(&lab.near)?)?;
    send(&lab.far, SocketAddr::new(family.of(&lab.near)?, BY_NFT))?;
    let near = family.of(&lab.near)?.to_string();
    let of_pod = |port| -> Result<()> {
        send(&lab.near, SocketAddr::new(pod, port))?;
        let event = drop_at(follower, SocketAddr::new(pod, port))?;
        ensure!(
            event["kernel_drop"] == "netfilter_drop" && event["program"] == Value::Null,
            "{event:#}"
        );
        ensure!(
            event["from"]["address"] == near.as_str() && event["direction"] == "egress",
            "{event:#}"
        );
        ensure!(
            event["protocol"] == "udp" && event["interface"] == "cni0",
            "{event:#}"
        );
        Ok(())
    };
    of_pod(BY_NFT)?;
    of_pod(BY_LEGACY)?;
    send(&lab.nodes.a, SocketAddr::new(pod, OF_THE_HOST))?;
    let event = drop_at(follower, SocketAddr::new(pod, OF_THE_HOST))?;
    ensure!(
        event["kernel_drop"] == "netfilter_drop" && event["from"]["kind"] == "host",
        "{event:#}"
    );
    Ok(())
}

/// A pod's packet to where no route leads.
fn drops_without_a_route_are_seen(lab: &FastLab, follower: &Follower) -> Result<()> {
    let to = SocketAddr::new(UNREACHABLE.parse()?, BY_NFT);
    // No other table has a route, so that there is none (ENETUNREACH).
    lab.nodes
        .a
        .sh(&format!("ip route add throw {UNREACHABLE}"))?;
    send(&lab.near, to)?;
    let event = drop_at(follower, to)?;
    ensure!(
        event["kernel_drop"] == "ip_innoroutes" && event["to"]["kind"] == "outside",
        "{event:#}"
    );
    Ok(())
}

/// Packets without a pod, and those of other network namespaces, are not events.
fn others_are_not_seen(lab: &FastLab, follower: &Follower) -> Result<()> {
    let host = Family::V4.host(12);
    lab.nodes.a.nft(&format!(
        "table ip outside {{ chain o {{ type filter hook output priority 0; udp dport {ELSEWHERE} \
         drop; }}; }}"
    ))?;
    send(&lab.nodes.a, SocketAddr::new(host, ELSEWHERE))?;
    // Behind it, one that is.
    let pod = Family::V4.of(&lab.other)?;
    send(&lab.nodes.a, SocketAddr::new(pod, ELSEWHERE))?;
    drop_at(follower, SocketAddr::new(pod, ELSEWHERE))?;
    let near =
        [Family::V4.of(&lab.near)?, Family::V6.of(&lab.near)?].map(|address| address.to_string());
    let log = follower.interrupt()?;
    let events = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for event in events.filter(|event| event["event"] == "dropped") {
        let to = event["to"]["address"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        ensure!(to != host.to_string() && !near.contains(&to), "{event:#}");
    }
    Ok(())
}

fn hubble_names_the_policy(lab: &FastLab) -> Result<()> {
    let pod = Family::V4.of(&lab.far)?;
    let dropped = FlowFilter {
        verdict: vec![Verdict::Dropped.into()],
        ..FlowFilter::default()
    };
    let request = GetFlowsRequest {
        follow: true,
        whitelist: vec![dropped],
        ..GetFlowsRequest::default()
    };
    let is_wanted = |flow: &Flow| {
        flow.ip
            .as_ref()
            .is_some_and(|ip| ip.destination == pod.to_string())
    };
    let script = format!("while :; do printf x > /dev/udp/{pod}/{BY_NFT}; sleep 0.1; done");
    let _sender = lab.near.spawn("denied", ["bash", "-c", &script])?;
    let flow = first_flow(&lab.nodes.a.outside_path(SOCKET), &request, is_wanted)?;
    ensure!(
        flow.drop_reason_desc() == DropReason::PolicyDenied
            && flow.summary == "UDP; netfilter_drop",
        "{flow:?}"
    );
    Ok(())
}

#[test]
fn packets_that_rules_drop_are_seen_with_the_reason() -> Result<()> {
    let lab = FastLab::new("kdrops", &[&format!("--hubble-socket={SOCKET}")])?;
    let follower = Follower::start(&lab.agents[0], &["-o", "json"])?;
    for family in Family::ALL {
        drops_of_rules_are_seen(&lab, &follower, family)?;
    }
    drops_without_a_route_are_seen(&lab, &follower)?;
    others_are_not_seen(&lab, &follower)?;
    hubble_names_the_policy(&lab)
}
