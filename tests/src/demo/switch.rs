//! A mode switch under load: no datagram may be lost.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Cluster, page::Page, speed};
use crate::{
    eventually,
    load::{UdpLoad, UdpRun},
};

const PPS: u32 = 5_000;
/// The number of datagrams that must go through a mode before the next switch.
const PER_MODE: u64 = 2_500;

/// From `fast` to `kernel` and back while a stream runs.
pub(super) fn live(page: &mut Page, cluster: &Cluster) -> Result<()> {
    let load = UdpLoad { pps: PPS, duration: Duration::from_secs(30), payload: 64 };
    let run = UdpRun::start(cluster.near(), cluster.far(), cluster.far().ip(), load)?;
    more(cluster, "datagrams in mode fast", taken)?;
    speed::set_mode(cluster, "kernel")?;
    let still = taken(cluster)?;
    more(cluster, "datagrams in mode kernel", received)?;
    let while_kernel = taken(cluster)? - still;
    speed::set_mode(cluster, "fast")?;
    more(cluster, "datagrams in mode fast again", taken)?;
    let report = run.stop()?;
    page.line(&format!(
        "{} datagrams at {PPS} a second, fast -> kernel -> fast: {} lost, {} doubled, {} out of order",
        report.sent,
        report.lost_count(),
        report.duplicated,
        report.reordered
    ));
    page.line(&format!("the longest time without a datagram was {:.1} ms", report.longest_gap.as_secs_f64() * 1e3));
    if report.receiver_drops > 0 {
        page.line(&format!("{} were dropped at the receiving socket, not on the way", report.receiver_drops));
    }
    page.expect(report.lost_count() <= report.receiver_drops, &format!("lost: {:?}", report.lost));
    page.expect(report.duplicated == 0, "datagrams arrived twice");
    page.expect(while_kernel == 0, &format!("{while_kernel} packets taken by eBPF in mode kernel"));
    Ok(())
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
    let path = cluster.net.c.outside_path("/sys/class/net/flannel.1/statistics/rx_packets");
    Ok(std::fs::read_to_string(path)?.trim().parse()?)
}
