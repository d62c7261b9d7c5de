//! A peer that speaks stock flannel's format, made by hand: a UDP socket whose datagrams are
//! packets of IPv4.

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Pod, ThreeNodes,
    cluster::{self, topology::Stack},
    eventually,
};
use serde_json::json;

use super::{BACKEND, base, counted};

const LEASE: &str = "/coreos.com/network/subnets/10.244.9.0-24";
const PORT: u16 = 8285;

/// The reply to an ICMP echo request, from its bytes.
fn reply(request: &[u8]) -> Vec<u8> {
    let mut bytes = request.to_vec();
    bytes[12..16].copy_from_slice(&request[16..20]);
    bytes[16..20].copy_from_slice(&request[12..16]);
    bytes[20] = 0;
    // The type's part of the sum: 8 in the high byte of its first word.
    let sum = u32::from(u16::from_be_bytes([request[22], request[23]])) + 0x0800;
    let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or(u16::MAX);
    bytes[22..24].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn a_peer_of_stock_flannel_and_a_pod_reach_each_other() -> Result<()> {
    let nodes = ThreeNodes::with("udp-stock", Stack::V4, &cluster::config(Stack::V4, BACKEND))?;
    // As stock publishes it: without a type.
    let value = json!({ "PublicIP": "192.168.2.13", "PublicIPv6": null });
    nodes.etcd.put(LEASE, &value.to_string(), None)?;
    let agent = nodes.a.ready_agent(nodes.options()?)?;
    let pod = nodes.a.add_pod("p1")?;
    nodes.lab.record_strays()?;
    eventually("a peer", Duration::from_secs(20), || {
        let peer = agent.peer_status("192.168.2.13")?;
        ensure!(peer["way"] == "udp", "{peer}");
        Ok(())
    })?;

    let (request, from, socket) = answer_a_ping(&nodes, &pod)?;
    let (unknown, _stranger) = count_drops(&nodes, &agent, &request, &socket)?;

    // Its lease gone, it is a stranger, and its subnet unreachable.
    nodes.etcd.delete(LEASE)?;
    wait_unreachable(&pod)?;
    ensure!(base(&agent)?.starts_with("10.244."), "a subnet");
    socket
        .send_to(&reply(&request), from)
        .context("a datagram")?;
    eventually("a drop", Duration::from_secs(20), || {
        ensure!(
            counted(&agent, "unknown_sender")? == unknown + 2,
            "the peer is still known"
        );
        Ok(())
    })
}

/// Answers one ping of the pod from the peer's node: the request, its sender, and the socket.
fn answer_a_ping(nodes: &ThreeNodes, pod: &Pod) -> Result<(Vec<u8>, SocketAddr, UdpSocket)> {
    let socket = nodes
        .c
        .enter(|| UdpSocket::bind(("192.168.2.13", PORT)))??;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    let answering = nodes.c.thread(move || {
        let mut buffer = [0; 2000];
        let (length, from) = socket.recv_from(&mut buffer)?;
        let request = buffer[..length].to_vec();
        socket.send_to(&reply(&request), from)?;
        Ok((request, from, socket))
    })?;
    let pinged = pod.sh("ping -c 1 -w 20 10.244.9.7")?.stdout;
    let (request, from, socket) = flannel_tests::host::joined(answering)?;
    assert_eq!(from.to_string(), format!("192.168.1.11:{PORT}"));
    // 64 of the pod, less one each by the node and by the process; the reply the same way.
    assert_eq!(
        (request[0], request[8], request.len()),
        (0x45, 62, 84),
        "a packet without a header of its own"
    );
    assert_eq!(request[16..20], [10, 244, 9, 7]);
    ensure!(pinged.contains("ttl=60"), "{pinged}");
    Ok((request, from, socket))
}

/// A datagram from a sender without a lease, and one that is not an IP packet. Returns the count of
/// unknown senders before them, and the socket of that sender.
fn count_drops(
    nodes: &ThreeNodes,
    agent: &Agent,
    request: &[u8],
    socket: &UdpSocket,
) -> Result<(u64, UdpSocket)> {
    let (unknown, malformed) = (
        counted(agent, "unknown_sender")?,
        counted(agent, "malformed")?,
    );
    let stranger = nodes.b.enter(|| UdpSocket::bind(("192.168.1.12", 0)))??;
    stranger.send_to(&reply(request), ("192.168.1.11", PORT))?;
    socket.send_to(b"no packet", ("192.168.1.11", PORT))?;
    eventually("two drops", Duration::from_secs(20), || {
        ensure!(
            counted(agent, "unknown_sender")? == unknown + 1,
            "none of an unknown sender"
        );
        ensure!(
            counted(agent, "malformed")? == malformed + 1,
            "none of a malformed packet"
        );
        Ok(())
    })?;
    Ok((unknown, stranger))
}

fn wait_unreachable(pod: &Pod) -> Result<()> {
    eventually("an unreachable subnet", Duration::from_secs(20), || {
        let pinged = pod
            .command(["ping", "-c", "1", "-W", "1", "10.244.9.7"])
            .any_code()
            .run()?;
        ensure!(
            pinged.stdout.contains("Destination Net Unreachable"),
            "{}",
            pinged.stdout
        );
        Ok(())
    })
}
