//! Nodes that come back with another address: their subnets and their pods stay theirs.

use std::time::Duration;

use anyhow::{Context as _, Result};
use flannel_tests::{
    Agent, AgentOptions, Node, TwoNodes,
    cluster::{self, LEASES, VXLAN, topology::Stack},
    eventually,
    load::{UdpLoad, UdpRun},
};

use super::own::own_key;

/// Datagrams of a load in a second.
const PPS: u32 = 500;

fn readdress(node: &Node, from: &str, to: &str) -> Result<()> {
    node.sh(&format!("ip address del {from}/24 dev eth0"))?;
    node.sh(&format!("ip address add {to}/24 dev eth0"))?;
    Ok(())
}

fn start(node: &Node, options: &AgentOptions) -> Result<Agent> {
    node.ready_agent(options.clone())
}

/// Pods of the node `a` are reached from `b` again after `a` came back with another address, and
/// each node has one lease, with its subnet of before.
fn keeps_its_subnet_with_another_address(name: &str, config: &str, flags: &[&str]) -> Result<()> {
    let pair = TwoNodes::new(name, config)?;
    let options = pair.options()?.flags(flags);
    let (a, _b) = (start(&pair.a, &options)?, start(&pair.b, &options)?);
    a.wait_peers(1)?;
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    far.wait_ping(near.ip())?;
    let before = own_key(&a)?;
    let load = UdpLoad {
        pps: PPS,
        duration: Duration::from_mins(2),
        payload: 64,
    };
    let run = UdpRun::start(&far, &near, near.ip(), load)?;
    a.sigterm_and_wait()?;
    readdress(&pair.a, "192.168.1.11", "192.168.1.61")?;
    a.restart()?;
    a.wait_ready()?;
    far.wait_ping(near.ip())?;
    let report = run.stop()?;
    let seconds = f64::from(u32::try_from(report.lost_count())?) / f64::from(PPS);
    println!(
        "{name}: {seconds:.1} s without traffic; subnet before {before}, after {}",
        own_key(&a)?
    );
    assert_eq!(own_key(&a)?, before);
    assert_eq!(a.status()?["lease"]["public_ip"], "192.168.1.61");
    assert_eq!(pair.etcd.list(LEASES)?.len(), 2, "a lease for each node");
    near.ping(far.ip())?;
    Ok(())
}

#[test]
fn a_node_with_another_address_keeps_its_subnet_and_its_pods_in_mode_kernel() -> Result<()> {
    keeps_its_subnet_with_another_address("kernel", VXLAN, &["--datapath=kernel"])
}

#[test]
fn a_node_with_another_address_keeps_its_subnet_and_its_pods_in_mode_fast() -> Result<()> {
    keeps_its_subnet_with_another_address("fast", VXLAN, &["--datapath=fast"])
}

/// Their leases name no device: the record of the node proves that the lease is its own.
#[test]
fn a_node_without_a_tunnel_device_keeps_its_subnet_by_its_record() -> Result<()> {
    keeps_its_subnet_with_another_address(
        "record",
        &cluster::config(Stack::V4, cluster::HOST_GW),
        &[],
    )
}

/// DHCP gave each the address of the other. The addresses at which etcd is reached stay.
#[test]
fn nodes_that_swap_their_addresses_keep_their_subnets() -> Result<()> {
    let pair = TwoNodes::new("swap", VXLAN)?;
    let [first, second] = ["192.168.1.21", "192.168.1.22"];
    let start_at = |node: &Node, address: &str| -> Result<Agent> {
        node.sh(&format!("ip address add {address}/24 dev eth0"))?;
        start(
            node,
            &pair.options()?.flag(&format!("--public-ip={address}")),
        )
    };
    let [a, b] = [start_at(&pair.a, first)?, start_at(&pair.b, second)?];
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    near.wait_ping(far.ip())?;
    let before = [own_key(&a)?, own_key(&b)?];
    a.sigterm_and_wait()?;
    b.sigterm_and_wait()?;
    pair.a.sh(&format!("ip address del {first}/24 dev eth0"))?;
    pair.b.sh(&format!("ip address del {second}/24 dev eth0"))?;
    let [a, b] = [start_at(&pair.a, second)?, start_at(&pair.b, first)?];
    assert_eq!([own_key(&a)?, own_key(&b)?], before);
    near.wait_ping(far.ip())?;
    far.wait_ping(near.ip())?;
    assert_eq!(pair.etcd.list(LEASES)?.len(), 2);
    Ok(())
}

/// Two machines with one public address, as behind one NAT: the second waits, and both name it.
#[test]
fn a_second_machine_with_our_public_address_waits_and_both_say_so() -> Result<()> {
    let pair = TwoNodes::new("same", VXLAN)?;
    let options = pair.options()?.flag("--public-ip=192.168.1.200");
    let a = start(&pair.a, &options)?;
    let (key, value) = (own_key(&a)?, pair.etcd.get(&own_key(&a)?)?);
    let b = pair.b.agent(options)?;
    let waits = b.wait_status("the reason", |status| {
        let problem = status["lease_problem"].as_str().context("no problem")?;
        anyhow::ensure!(
            problem.contains("another machine has our public address 192.168.1.200"),
            "{problem}"
        );
        Ok(())
    })?;
    assert_eq!(
        (&waits["ready"], &waits["conflicts"]["address"]),
        (&false.into(), &1.into()),
        "{waits}"
    );
    let named = a.wait_status("the other machine", |status| {
        status["lease_problem"]
            .as_str()
            .context("no problem")
            .map(drop)
    })?;
    assert_eq!(
        (&named["ready"], &named["conflicts"]["address"]),
        (&true.into(), &1.into()),
        "{named}"
    );
    eventually("the lease as it was", Duration::from_secs(10), || {
        anyhow::ensure!(pair.etcd.get(&key)? == value);
        Ok(())
    })?;
    assert_eq!(
        pair.etcd.list(LEASES)?.len(),
        1,
        "none for the second machine"
    );
    // The first machine is gone for good.
    a.sigterm_and_wait()?;
    pair.etcd.delete(&key)?;
    b.wait_ready()?;
    assert_eq!(b.status()?["lease_problem"], serde_json::Value::Null);
    Ok(())
}

/// A reboot: no device, no files, and the lease of before.
#[test]
fn a_machine_that_was_reinstalled_takes_its_lease_over() -> Result<()> {
    let pair = TwoNodes::new("reinstalled", VXLAN)?;
    let a = start(&pair.a, &pair.options()?)?;
    let (key, mac) = (own_key(&a)?, a.status()?["device"]["mac"].clone());
    a.sigterm_and_wait()?;
    pair.a.sh("ip link delete flannel.1")?;
    for file in ["subnet.env", "lease"] {
        std::fs::remove_file(pair.a.outside_path(format!("/run/flannel/{file}")))?;
    }
    a.restart()?;
    a.wait_ready()?;
    assert_eq!(own_key(&a)?, key);
    assert_ne!(a.status()?["device"]["mac"], mac, "another device");
    Ok(())
}
