//! Merged packets enter only pods in which they end: one that forwards them would have the kernel
//! cut them in software, because they still name the tunnel they came by.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent, Host, Pair, Pod,
    cluster::topology::OFFLOAD,
    eventually,
    fast::fast_pair,
    judged,
    load::bulk::{Bulk, BulkLoad},
};

/// 16 MB each way.
const BLOCKS: u64 = 256;
const PORT: u16 = 5001;
/// The address of the host behind the pod.
const INNER: &str = "10.99.0.2";

/// Waits until merged packets may be put into a pod, or may not for this reason.
fn wait_merged(agent: &Agent, pod: &Pod, reason: Option<&str>) -> Result<()> {
    eventually(
        &format!("{}: {reason:?}", pod.veth()),
        Duration::from_secs(10),
        || {
            let row = agent.pod_status(pod)?;
            ensure!(
                row["merged"] == reason.is_none()
                    && row["merged_reason"] == serde_json::json!(reason),
                "{row}"
            );
            ensure!(row["sends"] == true && row["receives"] == true, "{row}");
            Ok(())
        },
    )
}

/// A host behind a pod, which translates a port to it. The device in between has no offloads of
/// tunnels, like a tap.
fn behind(pair: &Pair, pod: &Pod) -> Result<Host> {
    let inner = pair.lab.node("inner")?;
    pod.sh(&format!(
        "ip link add in0 type veth peer name in1 netns {}",
        inner.pid()
    ))?;
    pod.sh("ethtool -K in0 tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off")?;
    for (host, device, address) in [(&**pod, "in0", "10.99.0.1"), (&*inner, "in1", INNER)] {
        host.sh(&format!("ip address add {address}/24 dev {device}"))?;
        host.sh(&format!("ip link set {device} mtu 1450 up"))?;
    }
    inner.sh("ip route add default via 10.99.0.1")?;
    pod.sh("sysctl -qw net.ipv4.ip_forward=1")?;
    let rule = format!("tcp dport {PORT} dnat to {INNER}");
    let chain = "type nat hook prerouting priority -100; policy accept";
    let rules = format!("table ip inner {{ chain pre {{ {chain}; {rule}; }}; }}");
    pod.nft(&rules)?;
    Ok((*inner).clone())
}

/// Mean length of the frames a host gets from the pod in front of it, while data flows both ways.
fn mean_of_forwarded(pair: &Pair, inner: &Host) -> Result<u64> {
    let counted = |name: &str| inner.device_counter("in1", name);
    let before = [counted("rx_bytes")?, counted("rx_packets")?];
    let service = SocketAddr::new(pair.far.ip(), PORT);
    let load = BulkLoad::blocks(BLOCKS);
    Bulk::start(
        &pair.near,
        inner,
        SocketAddr::new(INNER.parse()?, PORT),
        Some(service),
        load,
    )?
    .wait()?;
    Ok((counted("rx_bytes")? - before[0]) / (counted("rx_packets")? - before[1]))
}

/// Mean length of the packets that were put into pods of the receiving node while `work` was done.
fn mean_of_replayed(pair: &Pair, work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let before = pair.receiver.tally("from_underlay", "replayed")?;
    work()?;
    let now = pair.receiver.tally("from_underlay", "replayed")?;
    ensure!(
        now.packets > before.packets + 100,
        "{} replayed",
        now.packets - before.packets
    );
    Ok((now.bytes - before.bytes) / (now.packets - before.packets))
}

#[test]
fn what_a_pod_forwards_stays_merged_and_other_pods_get_merged_packets() -> Result<()> {
    let pair = fast_pair("fa-merged", &[])?;
    pair.set_offloads(OFFLOAD)?;
    let plain = pair.net.c.add_pod("p2")?;
    pair.receiver.wait_pod(&plain, true, true)?;
    wait_merged(&pair.receiver, &pair.far, None)?;
    let inner = behind(&pair, &pair.far)?;
    let reason = "in0 is up in its network namespace";
    wait_merged(&pair.receiver, &pair.far, Some(reason))?;
    let text = pair.receiver.cli_any(&["status"])?.stdout;
    ensure!(
        text.contains(&format!(
            "merged packets for it take the kernel's path: {reason}"
        )),
        "{text}"
    );
    let dump = pair
        .receiver
        .cli_json(&["maps", "dump", "pods", "-o", "json"])?;
    for (pod, merged) in [(&pair.far, false), (&plain, true)] {
        let rows = dump["pods"].as_array().cloned().unwrap_or_default();
        ensure!(
            rows.iter()
                .any(|row| row["veth"] == pod.veth() && row["merged"] == merged),
            "{dump}"
        );
    }
    // The kernel merges what comes together, and that depends on what else the machine does.
    judged("frames that a pod forwards", || {
        let in_fast = mean_of_forwarded(&pair, &inner)?;
        pair.set_mode("kernel")?;
        let in_kernel = mean_of_forwarded(&pair, &inner)?;
        pair.set_mode("fast")?;
        println!("mean of forwarded frames: mode fast {in_fast}, mode kernel {in_kernel}");
        ensure!(
            in_fast * 4 > in_kernel && in_fast > 2 * 1450,
            "{in_fast} in mode fast, {in_kernel} in mode kernel"
        );
        pair.receiver.wait_pod(&pair.far, true, true)
    })?;
    let left = pair.receiver.counted("from_underlay", "merged")?;
    ensure!(left > 0, "none was merged");
    pair.receiver.wait_pod(&plain, true, true)?;
    let mean = mean_of_replayed(&pair, || {
        let at = SocketAddr::new(plain.ip(), PORT);
        Bulk::start(&pair.near, &plain, at, None, BulkLoad::blocks(BLOCKS))?
            .wait()
            .map(drop)
    })?;
    println!("mean of packets put into the other pod: {mean}");
    ensure!(mean > 2 * 1450, "{mean}");
    pair.far.sh("ip link set in0 down")?;
    wait_merged(&pair.receiver, &pair.far, None)
}

#[test]
fn devices_of_every_kind_are_found_in_a_pod() -> Result<()> {
    let pair = fast_pair("fa-devices", &[])?;
    let kinds = [
        "br0 type bridge",
        "vx0 type vxlan id 7 dstport 4789 dev eth0",
        "mac0 link eth0 type macvlan",
    ];
    for kind in kinds {
        let name = kind.split(' ').next().unwrap_or_default();
        pair.far.sh(&format!("ip link add {kind}"))?;
        pair.far.sh(&format!("ip link set {name} up"))?;
        wait_merged(
            &pair.receiver,
            &pair.far,
            Some(&format!("{name} is up in its network namespace")),
        )?;
        pair.far.sh(&format!("ip link delete {name}"))?;
        wait_merged(&pair.receiver, &pair.far, None)?;
    }
    Ok(())
}
