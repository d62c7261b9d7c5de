//! A node under load: no datagram may be lost by a switch of the mode, nor by the death of an
//! agent.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Cluster, page::Page, speed};
use crate::{
    eventually,
    load::{UdpLoad, UdpReport, UdpRun},
};

const PPS: u32 = 5_000;
/// The number of datagrams that must go through a mode before the next switch.
const PER_MODE: u64 = 2_500;

/// From `fast` to `kernel` and back while a stream runs.
pub(super) fn live(page: &mut Page, cluster: &Cluster) -> Result<()> {
    let run = stream(cluster)?;
    more(cluster, "datagrams in mode fast", taken)?;
    speed::set_mode(cluster, "kernel")?;
    let still = taken(cluster)?;
    more(cluster, "datagrams in mode kernel", received)?;
    let while_kernel = taken(cluster)? - still;
    speed::set_mode(cluster, "fast")?;
    more(cluster, "datagrams in mode fast again", taken)?;
    show(page, &run.stop()?, "fast -> kernel -> fast");
    page.expect(
        while_kernel == 0,
        &format!("{while_kernel} packets taken by eBPF in mode kernel"),
    );
    page.proved("a mode switch is one write to a map, and no packet waits for it");
    Ok(())
}

/// The agent of the sender's node is killed, and started again, while a stream runs.
pub(super) fn without_agent(page: &mut Page, cluster: &Cluster) -> Result<()> {
    let run = stream(cluster)?;
    more(cluster, "datagrams with an agent", taken)?;
    let agent = &cluster.agents[0];
    agent.kill9()?;
    more(cluster, "datagrams without an agent", taken)?;
    agent.restart()?;
    agent.wait_ready()?;
    more(cluster, "datagrams with another agent", taken)?;
    show(page, &run.stop()?, "agent, SIGKILL, no agent, agent");
    page.proved("programs and maps are pinned: no packet depends on the agent");
    Ok(())
}

/// The rates of node a while a stream runs.
pub(super) fn rates(page: &mut Page, cluster: &Cluster) -> Result<()> {
    const LINES: usize = 16;
    let run = stream(cluster)?;
    more(cluster, "datagrams in mode fast", taken)?;
    let agent = &cluster.agents[0];
    let screen = agent.cli_any(&["top", "--once", "--interval=2s"])?.stdout;
    let document = agent.cli_json(&["top", "--once", "--interval=1s", "-o", "json"])?;
    run.stop()?;
    page.line("a$ flannel-agent top --once --interval=2s");
    for line in screen.lines().take(LINES) {
        page.line(line.trim_end());
    }
    page.expect(
        document["peers"]
            .as_array()
            .is_some_and(|peers| peers.len() == 2),
        &document.to_string(),
    );
    page.proved("peers, flows and the share of the fast path are read from BPF maps, at any time");
    Ok(())
}

fn stream(cluster: &Cluster) -> Result<UdpRun> {
    let load = UdpLoad {
        pps: PPS,
        duration: Duration::from_secs(30),
        payload: 64,
    };
    UdpRun::start(cluster.near(), cluster.far(), cluster.far().ip(), load)
}

fn show(page: &mut Page, report: &UdpReport, what: &str) {
    page.line(&format!(
        "{} datagrams at {PPS} a second, {what}: {} lost, {} doubled, {} out of order",
        report.sent,
        report.lost_count(),
        report.duplicated,
        report.reordered
    ));
    page.line(&format!(
        "the longest time without a datagram was {:.1} ms",
        report.longest_gap.as_secs_f64() * 1e3
    ));
    if report.receiver_drops > 0 {
        page.line(&format!(
            "{} were dropped at the receiving socket, not on the way",
            report.receiver_drops
        ));
    }
    page.expect(
        report.lost_count() <= report.receiver_drops,
        &format!("lost: {:?}", report.lost),
    );
    page.expect(report.duplicated == 0, "datagrams arrived twice");
}

fn more(cluster: &Cluster, what: &str, count: fn(&Cluster) -> Result<u64>) -> Result<()> {
    let start = count(cluster)?;
    eventually(what, Duration::from_secs(10), || {
        let now = count(cluster)?;
        ensure!(now >= start + PER_MODE, "{} of {PER_MODE}", now - start);
        Ok(())
    })
}

fn taken(cluster: &Cluster) -> Result<u64> {
    Ok(speed::taken(cluster)?[0])
}

/// Frames that came out of the tunnel on c.
fn received(cluster: &Cluster) -> Result<u64> {
    let path = cluster
        .net
        .c
        .outside_path("/sys/class/net/flannel.1/statistics/rx_packets");
    Ok(std::fs::read_to_string(path)?.trim().parse()?)
}
