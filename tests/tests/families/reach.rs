//! Every pod reaches every other by every family, by the kernel and by the programs.

use std::net::IpAddr;

use super::VXLAN;
use anyhow::{Result, ensure};
use flannel_tests::{
    cluster::{
        Cluster,
        topology::{OFFLOAD, Stack, WIRE},
    },
    load::iperf::tcp_stream,
};

/// A stream from a pod of `a` to one of `c`, and whether the programs of `a` took part in it as
/// they should.
fn stream(cluster: &Cluster, mode: &str, address: IpAddr) -> Result<()> {
    let ([near, _, far], sender) = (&cluster.pods, &cluster.agents[0]);
    let encapsulated = || sender.counted("to_tunnel", "encapsulated");
    let (before, again) = (encapsulated()?, near.counter("Tcp", "RetransSegs")?);
    let stream = tcp_stream(near, far, address, 1, None)?;
    let (taken, again) = (
        encapsulated()? - before,
        near.counter("Tcp", "RetransSegs")? - again,
    );
    println!(
        "{mode} {address}: {:.2} Gbit/s, {again} segments again",
        stream.bits_per_second / 1e9
    );
    ensure!(stream.bits_per_second > 0.0, "{stream:?}");
    ensure!(
        (taken > 0) == (mode == "encap"),
        "mode {mode}, {address}: {taken} packets encapsulated by the programs"
    );
    Ok(())
}

fn vxlan_connects(name: &str, stack: Stack) -> Result<()> {
    let cluster = Cluster::new(name, stack, VXLAN)?;
    for cable in [OFFLOAD, WIRE] {
        for node in cluster.net.nodes() {
            node.sh(&format!("ethtool -K eth0 {cable}"))?;
        }
        for mode in ["kernel", "encap"] {
            cluster.set_mode(mode)?;
            cluster.wait_connected()?;
            for address in cluster.pods[2].addresses() {
                stream(&cluster, mode, *address)?;
            }
        }
    }
    Ok(())
}

#[test]
fn ipv6_alone_connects_all_pods() -> Result<()> {
    vxlan_connects("six", Stack::V6)
}

#[test]
fn both_families_connect_all_pods() -> Result<()> {
    vxlan_connects("dual", Stack::Dual)
}
