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

const RR_TIME: Duration = Duration::from_millis(500);
const STREAM_SECONDS: u32 = 1;
/// Of all rows in turns.
const ROUNDS: usize = 3;
/// Rounds that differ by more than this say nothing about speed.
const WIDE: f64 = 1.3;

/// The rows, and the mode of each.
const LINES: [(&str, Option<&str>); 4] = [
    ("host network", None),
    ("mode kernel", Some("kernel")),
    ("mode encap", Some("encap")),
    ("mode fast", Some("fast")),
];

const TITLES: [&str; 9] = [
    "",
    "TCP stream",
    "CPU",
    "TCP RR",
    "CPU",
    "UDP RR",
    "CPU",
    "eBPF: a",
    "c",
];

/// The ends of the measurements of one row.
struct Ends<'a> {
    from: &'a Host,
    to: &'a Host,
    at: IpAddr,
}

/// One measurement of a row.
struct Round {
    /// Gbit/s.
    stream: f64,
    /// Milliseconds of CPU for a Gbit.
    stream_cpu: f64,
    /// Of a request with its response, by TCP and by UDP: microseconds, and those of CPU.
    requests: [(f64, f64); 2],
    /// Packets that the programs took, on a and on c.
    taken: [u64; 2],
}

/// The host network and each mode, in turns; ends in the default one.
pub(super) fn compare(page: &mut Page, cluster: &Cluster) -> Result<()> {
    let host: IpAddr = "192.168.2.13".parse().context("address of c")?;
    let nodes = Ends {
        from: &cluster.net.a,
        to: &cluster.net.c,
        at: host,
    };
    let pods = Ends {
        from: cluster.near(),
        to: cluster.far(),
        at: cluster.far().ip(),
    };
    let mut rounds = LINES.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((_, mode), rounds) in LINES.iter().zip(&mut rounds) {
            if let Some(mode) = mode {
                set_mode(cluster, mode)?;
            }
            rounds.push(measure(
                cluster,
                if mode.is_some() { &pods } else { &nodes },
            )?);
        }
    }
    let mut rows = vec![row(TITLES)];
    for ((title, mode), rounds) in LINES.iter().zip(&rounds) {
        rows.push(cells(title, rounds));
        for (node, at) in [("a", 0), ("c", 1)] {
            let packets: u64 = rounds.iter().map(|round| round.taken[at]).sum();
            let is_taken = mode.is_some_and(|mode| mode != "kernel");
            page.expect(
                (packets > 0) == is_taken,
                &format!("{packets} packets on {node}, {title}"),
            );
        }
    }
    page.line(&table(&rows));
    page.gap();
    explain(page);
    conclude(page, &rounds);
    Ok(())
}

/// The meaning of the columns.
fn explain(page: &mut Page) {
    page.line(&format!(
        "Medians of {ROUNDS} rounds in turns. RR: request and response. CPU: what all CPUs worked \
         for a"
    ));
    page.line(
        "Gbit, or for a request with its response; on idle CPUs the gain is less work rather \
        than higher",
    );
    page.line(
        "rates. eBPF: packets that the programs carried on a and c; a segmented one counts once.",
    );
}

/// A statement on speed, unless the machine was busy.
fn conclude(page: &mut Page, rounds: &[Vec<Round>; LINES.len()]) {
    let spread = rounds
        .iter()
        .map(|rounds| spread(rounds))
        .fold(1.0, f64::max);
    if spread > WIDE {
        page.line(&format!(
            "No statement on speed: the machine is busy, rounds differ by a factor of {spread:.1}."
        ));
    } else {
        let ratio = median(&rounds[1], |round| round.requests[0].0)
            / median(&rounds[3], |round| round.requests[0].0);
        page.proved(&format!(
            "requests take {ratio:.2} times as long in mode kernel as in mode fast"
        ));
    }
}

fn measure(cluster: &Cluster, ends: &Ends<'_>) -> Result<Round> {
    let before = taken(cluster)?;
    let (report, busy) = worked(|| tcp_stream(ends.from, ends.to, ends.at, STREAM_SECONDS, None))?;
    let stream = report.bits_per_second / 1e9;
    let ask = |protocol| worked(|| rr(ends.from, ends.to, ends.at, protocol, RR_TIME));
    let requests = [ask(Protocol::Tcp)?, ask(Protocol::Udp)?];
    let after = taken(cluster)?;
    Ok(Round {
        stream,
        stream_cpu: 1e3 * busy / (stream * f64::from(STREAM_SECONDS)),
        requests: requests.map(|(report, busy)| (report.median, cpu_of_each(busy, &report))),
        taken: [after[0] - before[0], after[1] - before[1]],
    })
}

fn cells(title: &str, rounds: &[Round]) -> Vec<String> {
    let [tcp, udp] = [0, 1].map(|protocol| {
        let of = |value: fn(&(f64, f64)) -> f64| {
            median(rounds, |round| value(&round.requests[protocol]))
        };
        [of(|request| request.0), of(|request| request.1)].map(|time| format!("{time:.1} us"))
    });
    let taken = [0, 1].map(|node| {
        rounds
            .iter()
            .map(|round| round.taken[node])
            .sum::<u64>()
            .to_string()
    });
    row([
        title,
        &format!("{:.1} Gbit/s", median(rounds, |round| round.stream)),
        &format!("{:.0} ms/Gbit", median(rounds, |round| round.stream_cpu)),
        &tcp[0],
        &tcp[1],
        &udp[0],
        &udp[1],
        &taken[0],
        &taken[1],
    ])
}

fn median(rounds: &[Round], value: impl Fn(&Round) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The slowest round of requests by TCP in terms of the fastest.
fn spread(rounds: &[Round]) -> f64 {
    let times = || rounds.iter().map(|round| round.requests[0].0);
    times().fold(0.0, f64::max) / times().fold(f64::INFINITY, f64::min)
}

/// The result of a measurement, and the seconds that CPUs worked for it.
fn worked<T>(measure: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let before = busy_seconds_of_all()?;
    let result = measure()?;
    Ok((result, busy_seconds_of_all()? - before))
}

/// The microseconds that CPUs worked for one request and its response.
fn cpu_of_each(busy: f64, report: &RrReport) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let transactions = report.transactions.max(1) as f64;
    1e6 * busy / transactions
}

/// Packets encapsulated from the peer map and packets replayed so far, on a and on c.
pub(super) fn taken(cluster: &Cluster) -> Result<[u64; 2]> {
    let of = |agent: &Agent| {
        Ok::<_, anyhow::Error>(agent.counted("to_tunnel", "encapsulated")? + agent.replayed()?)
    };
    Ok([of(&cluster.agents[0])?, of(&cluster.agents[2])?])
}

/// Switches all nodes.
pub(super) fn set_mode(cluster: &Cluster, mode: &str) -> Result<()> {
    cluster
        .agents
        .iter()
        .try_for_each(|agent| agent.set_mode(mode))
}
