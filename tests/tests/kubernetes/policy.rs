//! Judges of pods' packets on their nodes stay in charge: rules as a network policy
//! controller writes them, and one that asks a program about each new connection.

use std::{net::IpAddr, time::Duration};

use anyhow::{Result, ensure};
use flannel_tests::{
    eventually,
    kernel::nfqueue::Answers,
    kubernetes::{Kubernetes, PodOnNode},
    load::{UdpLoad, UdpRun},
};

use super::paths::{self, LABEL};

/// By then a flow is known to mode fast, and a changed rule is seen.
const SOON: Duration = Duration::from_secs(30);

fn url(pod: &PodOnNode) -> String {
    format!("http://{}:8080/hostname", pod.address())
}

/// Sends datagrams for a moment; the number that was lost of those sent.
fn lost(from: &PodOnNode, to: &PodOnNode) -> Result<(u64, u64)> {
    let load = UdpLoad {
        pps: 200,
        duration: Duration::from_secs(1),
        payload: 64,
    };
    let report = UdpRun::start(from, to, IpAddr::V4(to.address()), load)?.wait()?;
    Ok((report.lost_count(), report.sent))
}

/// A rule of the pod's node that drops packets to it is obeyed, by connections that are open too.
pub(crate) fn a_rule_that_drops_is_obeyed_on_every_node(cluster: &Kubernetes) -> Result<()> {
    let pods = cluster.pods(LABEL)?;
    for (from, to) in [
        (&pods[0], &pods[1]),
        (&pods[1], &pods[2]),
        (&pods[2], &pods[0]),
    ] {
        let node = cluster.node(to.node())?;
        let rule = format!("FORWARD -s {} -d {} -j DROP", from.address(), to.address());
        paths::ask(from, &url(to))?;
        node.sh(&format!("iptables -w -I {rule}"))?;
        eventually("packets to be dropped", SOON, || {
            let (lost, sent) = lost(from, to)?;
            ensure!(lost == sent, "{lost} of {sent}");
            Ok(())
        })?;
        ensure!(
            paths::ask(from, &url(to)).is_err(),
            "{} was reached",
            to.name()
        );
        node.sh(&format!("iptables -w -D {rule}"))?;
        eventually("packets to pass", SOON, || {
            let (lost, sent) = lost(from, to)?;
            ensure!(lost == 0, "{lost} of {sent}");
            Ok(())
        })?;
    }
    Ok(())
}

/// As kube-network-policies does it: new connections are queued to a program of the node, and those
/// it accepted go on without it.
pub(crate) fn a_program_that_is_asked_about_connections_sees_each(
    cluster: &Kubernetes,
) -> Result<()> {
    let pods = cluster.pods(LABEL)?;
    let (from, to) = (&pods[0], &pods[1]);
    let node = cluster.node(from.node())?;
    // Probes of the kubelet are connections too.
    let pair = format!("-s {} -d {}", from.address(), to.address());
    let new = "-p tcp --dport 8080 -m conntrack --ctstate NEW";
    let rule = format!("POSTROUTING {pair} {new} -j NFQUEUE --queue-num 0 --queue-bypass");
    node.sh(&format!("iptables -w -t mangle -A {rule}"))?;
    let program = Answers::start(node, 0)?;
    for asked in 1..=20 {
        paths::ask(from, &url(to))?;
        ensure!(
            program.count() >= asked,
            "{} of {asked} connections were asked about",
            program.count()
        );
    }
    drop(program);
    // Without a program `bypass` lets them pass.
    paths::ask(from, &url(to))?;
    node.sh(&format!("iptables -w -t mangle -D {rule}"))?;
    Ok(())
}
