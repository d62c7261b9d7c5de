//! An underlay that sums packets as a whole (`CHECKSUM_COMPLETE`): a vxlan device with UDP
//! checksums, as where the nodes are themselves in an overlay. What mode `fast` changes in a
//! header, that sum has to follow, or the pod drops the packet.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, AgentOptions, Lab, Node, Pod, cluster,
    fast::{FLAGS, Family},
    load::{UdpLoad, UdpRun},
    topology::Stack,
};

/// Larger than what the kernel sums while it copies (`CHECKSUM_BREAK`, 76 bytes): only then the sum
/// is used.
const PAYLOAD: usize = 600;

/// Makes the external interface of a node: a vxlan device over its cable.
fn underlay(node: &Node, number: u8, peer: u8) -> Result<()> {
    node.address("cable", &format!("10.99.0.{number}/24"), None)?;
    // The sender computes the outer checksum, so that the receiver has to verify it in software.
    node.sh("ethtool -K cable tx off")?;
    node.sh(&format!(
        "ip link add eth0 type vxlan id 42 dstport 4789 local 10.99.0.{number} remote 10.99.0.{peer} dev cable udpcsum"
    ))?;
    node.sh("ip link set eth0 up")?;
    node.address("eth0", &format!("192.168.1.{number}/24"), None)?;
    node.address("eth0", &format!("2001:db8:1::{number}/64"), None)
}

/// Datagrams the pod dropped for their checksum, of either family.
fn checksum_errors(pod: &Pod) -> Result<u64> {
    let v6 = pod.sh("cat /proc/net/snmp6")?.stdout;
    let v6 = v6.lines().find_map(|line| line.strip_prefix("Udp6InCsumErrors")?.trim().parse::<u64>().ok());
    let v4 = pod.sh("cat /proc/net/snmp")?.stdout;
    let mut udp = v4.lines().filter_map(|line| line.strip_prefix("Udp:")).map(str::split_ascii_whitespace);
    let (names, values) = udp.next().zip(udp.next()).context("no line of UDP")?;
    let v4 =
        names.zip(values).find(|(name, _)| *name == "InCsumErrors").and_then(|(_, value)| value.parse::<u64>().ok());
    let (v4, v6) = v4.zip(v6).context("no count of checksum errors")?;
    Ok(v4 + v6)
}

#[test]
fn packets_summed_as_a_whole_arrive_in_every_mode() -> Result<()> {
    let lab = Lab::new("fastsums")?;
    let (a, b) = (lab.node("a")?, lab.node("b")?);
    lab.link(&a, "cable", &b, "cable")?;
    underlay(&a, 11, 12)?;
    underlay(&b, 12, 11)?;
    let etcd = lab.etcd(&b)?;
    etcd.put(cluster::CONFIG_KEY, &cluster::config(Stack::Dual, r#"{"Type":"vxlan"}"#), None)?;
    let agent = |node: &Node| -> Result<Agent> {
        let options = AgentOptions::etcd(&etcd.endpoint("192.168.1.12"))?;
        node.agent(FLAGS.iter().fold(options, |options, flag| options.flag(flag)))
    };
    let agents = [agent(&a)?, agent(&b)?];
    agents.iter().try_for_each(Agent::wait_ready)?;
    let (near, far) = (a.add_pod("p1")?, b.add_pod("p1")?);
    for family in Family::ALL {
        near.wait_ping(family.of(&far)?)?;
    }
    agents[0].wait_pod(&near, true, true)?;
    agents[1].wait_pod(&far, true, true)?;
    for mode in ["kernel", "fast"] {
        agents.iter().try_for_each(|agent| agent.set_mode(mode))?;
        for family in Family::ALL {
            arrives(&agents[1], [&near, &far], family.of(&far)?, mode)
                .with_context(|| format!("mode {mode}, {family:?}"))?;
        }
    }
    Ok(())
}

fn arrives(receiver: &Agent, [near, far]: [&Pod; 2], to: IpAddr, mode: &str) -> Result<()> {
    let (errors, before) = (checksum_errors(far)?, receiver.counted("from_underlay", "replayed")?);
    let load = UdpLoad { pps: 500, duration: Duration::from_secs(3), payload: PAYLOAD };
    let report = UdpRun::start(near, far, to, load)?.wait()?;
    let errors = checksum_errors(far)? - errors;
    let replayed = receiver.counted("from_underlay", "replayed")? - before;
    println!("{mode}: {} of {} datagrams, {replayed} replayed, {errors} checksum errors", report.received, report.sent);
    ensure!(errors == 0, "{errors} checksum errors: {report:?}");
    ensure!(mode != "fast" || replayed > report.sent / 2, "{replayed} of {} were replayed", report.sent);
    report.expect_complete()
}
