//! Packets of pods through ESP. This needs a kernel that has it: `cargo xtask test --kernel`.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent, Pod, TwoNodes,
    cluster::{self, topology::Stack},
    load::{UdpLoad, bulk::transfer},
    not_run,
    packet::wire::Capture,
};

use super::{
    ADDRESSES, PSK, agents, has_esp,
    process::{connected_pods, is_esp},
    two_nodes, two_nodes_with, wait_tunnel,
};

const LOAD: UdpLoad = UdpLoad {
    pps: 200,
    duration: Duration::from_mins(5),
    payload: 64,
};
/// 6.5 MB each way, which is minutes of work for no emulated processor.
const BLOCKS: u64 = 100;

/// Two nodes whose pods reach each other, encrypted.
struct Encrypted {
    pods: [Pod; 2],
    agents: [Agent; 2],
    nodes: TwoNodes,
}

impl Encrypted {
    /// `None` where the kernel has no ESP.
    fn of(nodes: TwoNodes) -> Result<Option<Self>> {
        if !has_esp(&nodes.a)? {
            not_run(
                "packets through the backend ipsec",
                "this kernel has no ESP",
            );
            return Ok(None);
        }
        let agents = agents(&nodes)?;
        for (agent, peer) in agents.iter().zip([ADDRESSES[1], ADDRESSES[0]]) {
            wait_tunnel(agent, peer, "installed")?;
        }
        Ok(Some(Self {
            pods: connected_pods(&nodes)?,
            agents,
            nodes,
        }))
    }

    /// Known bytes arrive both ways, and the largest packets that pods may send.
    fn carries_data(&self, overhead: u32) -> Result<()> {
        let [near, far] = &self.pods;
        let arrived = transfer(near, far, SocketAddr::new(far.ip(), 5201), BLOCKS)?;
        assert_eq!(arrived.map(|way| way.blocks), [BLOCKS; 2]);
        let mtu = self.nodes.a.subnet_env()?.mtu;
        assert_eq!(mtu, 1500 - overhead);
        near.sh(&format!(
            "ping -n -c 3 -i 0.1 -W 5 -M do -s {} {}",
            mtu - 28,
            far.ip()
        ))
        .map(drop)
    }
}

#[test]
fn data_pass_encrypted_and_restarts_lose_no_datagram() -> Result<()> {
    let Some(lab) = Encrypted::of(two_nodes("ipsec-data")?)? else {
        return Ok(());
    };
    let encrypted = Capture::start(&lab.nodes.b, "eth0", is_esp)?;
    lab.carries_data(77)?;
    ensure!(encrypted.len() > 1_000, "{} frames of ESP", encrypted.len());
    let [near, far] = &lab.pods;
    lab.agents[0].expect_no_loss_by_restarts([near, far], LOAD)
}

#[test]
fn with_udp_encap_esp_travels_in_datagrams() -> Result<()> {
    let backend = format!(r#"{{"Type":"ipsec","PSK":"{PSK}","UDPEncap":true}}"#);
    let nodes = two_nodes_with("ipsec-encap", &cluster::config(Stack::V4, &backend))?;
    let Some(lab) = Encrypted::of(nodes)? else {
        return Ok(());
    };
    let bare = Capture::start(&lab.nodes.b, "eth0", is_esp)?;
    let datagrams = Capture::start(&lab.nodes.b, "eth0", is_esp_in_udp)?;
    lab.carries_data(77 + 8)?;
    ensure!(
        datagrams.len() > 1_000 && bare.is_empty(),
        "{} datagrams, {} bare",
        datagrams.len(),
        bare.len()
    );
    Ok(())
}

/// Datagrams of port 4500 with a number of an association in front, which those of IKE have not.
fn is_esp_in_udp(frame: &[u8]) -> bool {
    let is_udp = frame.get(12..14) == Some(&[0x08, 0x00]) && frame.get(23) == Some(&17);
    is_udp
        && frame.get(36..38) == Some(&4500_u16.to_be_bytes())
        && frame.get(42..46).is_some_and(|spi| spi != [0; 4])
}
