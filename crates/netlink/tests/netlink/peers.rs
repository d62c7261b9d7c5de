//! The other end of a veth in another network namespace, as it is read without entering that.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use flannel_common::packet::addr::Mac;
use flannel_netlink::KernelEvent;
use tokio::time::timeout;

use crate::namespace::{Namespace, in_namespace, ip};

const POD_MAC: Mac = Mac([0x02, 0, 0, 0, 0x0d, 1]);

/// A namespace with one end of a veth in it, as a CNI plugin leaves it; it goes when this is
/// dropped.
struct Pod(String);

impl Pod {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "fl-peer-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        ip(&format!("netns add {name}"));
        let pod = Self(name);
        ip(&format!(
            "link add veth0 type veth peer name eth0 address {POD_MAC} netns {}",
            pod.0
        ));
        pod.ip("link set eth0 mtu 1400 up");
        ip("link set veth0 up");
        pod
    }

    fn ip(&self, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.0));
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        ip(&format!("netns delete {}", self.0));
    }
}

#[test]
fn a_pod_s_interface_is_read_from_outside() {
    in_namespace(async |ns| {
        let pod = Pod::new();
        let veth = ns.link("veth0").await;
        assert!(veth.netns.is_some(), "{veth:?}");
        let peer = ns
            .netlink
            .link_peer(&veth)
            .await
            .expect("an answer")
            .expect("a peer");
        assert_eq!(
            (peer.name.as_str(), peer.mac, peer.mtu),
            ("eth0", Some(POD_MAC), 1400)
        );
        assert_eq!((peer.qdisc.as_deref(), peer.xdp), (Some("noqueue"), false));
        pod.ip("link set eth0 address 02:00:00:00:0d:02");
        let peer = ns
            .netlink
            .link_peer(&veth)
            .await
            .expect("an answer")
            .expect("a peer");
        assert_eq!(
            peer.mac,
            Some(Mac([0x02, 0, 0, 0, 0x0d, 2])),
            "as it is now"
        );
    });
}

#[test]
fn the_links_of_a_pod_s_namespace_are_listed_from_outside() {
    in_namespace(async |ns| {
        let pod = Pod::new();
        pod.ip("link add br0 type bridge");
        let veth = ns.link("veth0").await;
        let netns = veth.netns.expect("a number");
        let links = ns
            .netlink
            .links_of(netns)
            .await
            .expect("an answer")
            .expect("a namespace");
        let end = links
            .iter()
            .find(|link| Some(link.index) == veth.lower)
            .expect("the other end");
        assert_eq!(
            (end.name.as_str(), end.mac, end.mtu, end.up),
            ("eth0", Some(POD_MAC), 1400, true)
        );
        let is_there = |name: &str| links.iter().any(|link| link.name == name && !link.up);
        assert!(
            is_there("br0") && is_there("lo") && !links.iter().any(|link| link.name == "peer0"),
            "{links:?}"
        );
        assert_eq!(
            ns.netlink.links_of(netns + 1000).await.expect("an answer"),
            None,
            "no namespace has that number"
        );
    });
}

#[test]
fn a_veth_whose_ends_are_here_has_its_peer_here() {
    in_namespace(async |ns| {
        let eth0 = ns.link("eth0").await;
        assert_eq!(eth0.netns, None);
        let peer = ns
            .netlink
            .link_peer(&eth0)
            .await
            .expect("an answer")
            .expect("a peer");
        assert_eq!(peer.name, "peer0");
    });
}

#[test]
fn a_veth_that_is_gone_has_no_peer() {
    in_namespace(async |ns| {
        let pod = Pod::new();
        let veth = ns.link("veth0").await;
        pod.ip("link delete eth0");
        assert_eq!(ns.netlink.link_peer(&veth).await.expect("an answer"), None);
    });
}

#[test]
fn qdiscs_and_filters_are_announced_with_their_device() {
    in_namespace(async |mut ns: Namespace| {
        let index = ns.link("eth0").await.index;
        let qdiscs = ["root tbf rate 1mbit burst 10k latency 1ms", "clsact"];
        let commands = qdiscs.map(|qdisc| format!("qdisc add dev eth0 {qdisc}"));
        let filter = "filter add dev eth0 ingress bpf da bytecode 1,6_0_0_4294967295,";
        for command in commands.iter().map(String::as_str).chain([filter]) {
            tc(command);
            announced(&mut ns, index).await;
        }
        assert_eq!(ns.link("eth0").await.qdisc.as_deref(), Some("tbf"));
    });
}

/// Runs one command of tc, where `_` stands for a blank in an argument.
fn tc(command: &str) {
    let arguments = command
        .split_whitespace()
        .map(|argument| argument.replace('_', " "));
    let status = std::process::Command::new("tc")
        .args(arguments)
        .status()
        .expect("tc is installed");
    assert!(status.success(), "tc {command}");
}

async fn announced(ns: &mut Namespace, index: u32) {
    let wanted = KernelEvent::TrafficControl {
        device: Some(index),
    };
    while timeout(Duration::from_secs(10), ns.events.next())
        .await
        .expect("an announcement")
        != Some(wanted.clone())
    {}
}
