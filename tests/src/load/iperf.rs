//! TCP streams with iperf3.

use std::{fs, net::IpAddr, time::Duration};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{Host, eventually};

/// The result of one stream.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Bits a second at the receiver.
    pub bits_per_second: f64,
    /// Segments sent again.
    pub retransmits: u64,
}

/// One TCP stream from `from` to the address `at` of `to`. With `cpu` both ends run on that CPU
/// alone.
pub fn tcp_stream(
    from: &Host,
    to: &Host,
    at: IpAddr,
    seconds: u32,
    cpu: Option<usize>,
) -> Result<Stream> {
    let pinned = |line: &str| match cpu {
        Some(cpu) => format!("taskset -c {cpu} {line}"),
        None => line.to_owned(),
    };
    let server = to.spawn(
        "iperf3",
        pinned(&format!("iperf3 -s -1 -B {at}")).split(' '),
    )?;
    eventually("iperf3 server", Duration::from_secs(5), || {
        listens(to, 5201)
    })?;
    let client = pinned(&format!("iperf3 -J -t {seconds} -c {at}"));
    let limit = Duration::from_secs(u64::from(seconds) + 10);
    let output = from.command(client.split(' ')).limit(limit).run()?;
    server.wait_success(Duration::from_secs(5))?;
    read(&output.stdout).with_context(|| format!("iperf3 printed:\n{}", output.stdout))
}

fn read(text: &str) -> Result<Stream> {
    let end = &serde_json::from_str::<Value>(text)?["end"];
    Ok(Stream {
        bits_per_second: end["sum_received"]["bits_per_second"]
            .as_f64()
            .context("no rate")?,
        retransmits: end["sum_sent"]["retransmits"]
            .as_u64()
            .context("no retransmits")?,
    })
}

/// Checks that a TCP socket listens at `port` in the host.
fn listens(host: &Host, port: u16) -> Result<()> {
    let listener = format!(":{port:04X} ");
    for file in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{}/net/{file}", host.pid()))?;
        // Local address, remote address, state; 0A is LISTEN.
        if text.lines().any(|line| {
            line.contains(&listener) && line.split_ascii_whitespace().nth(3) == Some("0A")
        }) {
            return Ok(());
        }
    }
    anyhow::bail!("nothing listens at port {port}")
}
