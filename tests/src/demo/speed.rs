//! Throughput, latency and what they take of the CPUs, in each mode, next to those of the host
//! network.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result};

use super::{
    Cluster,
    page::Page,
    table::{row, table},
};
use crate::{
    Agent, Host,
    load::{
        busy::busy_seconds_of_all,
        iperf::tcp_stream,
        rr::{Protocol, RrReport, rr},
    },
};

const RR_TIME: Duration = Duration::from_secs(1);
const STREAM_SECONDS: u32 = 2;

/// The ends of the measurements of one row.
struct Ends<'a> {
    from: &'a Host,
    to: &'a Host,
    at: IpAddr,
}

/// The host network and each mode; ends in the default one.
pub(super) fn compare(page: &mut Page, cluster: &Cluster) -> Result<()> {
    let host: IpAddr = "192.168.2.13".parse().context("address of c")?;
    let nodes = Ends { from: &cluster.net.a, to: &cluster.net.c, at: host };
    let pods = Ends { from: cluster.near(), to: cluster.far(), at: cluster.far().ip() };
    let titles = ["", "TCP stream", "CPU", "TCP RR", "CPU", "UDP RR", "CPU", "eBPF: a", "c"];
    let mut rows = vec![row(titles)];
    rows.push(measure("host network", cluster, &nodes)?.0);
    for mode in ["kernel", "encap", "fast"] {
        set_mode(cluster, mode)?;
        let (cells, taken) = measure(&format!("mode {mode}"), cluster, &pods)?;
        rows.push(cells);
        for (node, packets) in ["a", "c"].into_iter().zip(taken) {
            page.expect((packets > 0) == (mode != "kernel"), &format!("{packets} packets on {node} in mode {mode}"));
        }
    }
    page.line(&table(&rows));
    page.gap();
    page.line("RR: request and response, the median. CPU: what all CPUs worked for a Gbit, or for a request");
    page.line("with its response; on idle CPUs the gain is less work rather than higher rates.");
    page.line("eBPF: packets that the programs carried on a and c; a segmented one counts once.");
    Ok(())
}

fn measure(title: &str, cluster: &Cluster, ends: &Ends<'_>) -> Result<(Vec<String>, [u64; 2])> {
    let before = taken(cluster)?;
    let (stream, stream_busy) = worked(|| tcp_stream(ends.from, ends.to, ends.at, STREAM_SECONDS, None))?;
    let (tcp, tcp_busy) = worked(|| rr(ends.from, ends.to, ends.at, Protocol::Tcp, RR_TIME))?;
    let (udp, udp_busy) = worked(|| rr(ends.from, ends.to, ends.at, Protocol::Udp, RR_TIME))?;
    let after = taken(cluster)?;
    let packets = [after[0] - before[0], after[1] - before[1]];
    let cells = row([
        title,
        &format!("{:.1} Gbit/s", stream.bits_per_second / 1e9),
        &format!("{:.0} ms/Gbit", 1e3 * stream_busy / (stream.bits_per_second / 1e9 * f64::from(STREAM_SECONDS))),
        &format!("{:.1} us", tcp.median),
        &cpu_of_each(tcp_busy, &tcp),
        &format!("{:.1} us", udp.median),
        &cpu_of_each(udp_busy, &udp),
        &packets[0].to_string(),
        &packets[1].to_string(),
    ]);
    Ok((cells, packets))
}

/// The result of a measurement, and the seconds that CPUs worked for it.
fn worked<T>(measure: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let before = busy_seconds_of_all()?;
    let result = measure()?;
    Ok((result, busy_seconds_of_all()? - before))
}

/// The time that CPUs worked for one request and its response.
fn cpu_of_each(busy: f64, report: &RrReport) -> String {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let transactions = report.transactions.max(1) as f64;
    format!("{:.1} us", 1e6 * busy / transactions)
}

/// Packets encapsulated from the peer map and packets replayed so far, on a and on c.
pub(super) fn taken(cluster: &Cluster) -> Result<[u64; 2]> {
    let of = |agent: &Agent| Ok::<_, anyhow::Error>(agent.counted("to_tunnel", "encapsulated")? + agent.replayed()?);
    Ok([of(&cluster.agents[0])?, of(&cluster.agents[2])?])
}

/// Switches all nodes.
pub(super) fn set_mode(cluster: &Cluster, mode: &str) -> Result<()> {
    cluster.agents.iter().try_for_each(|agent| agent.set_mode(mode))
}
