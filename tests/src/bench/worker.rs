//! This program inside a pod: server and client of one measurement, as separate processes that can
//! be pinned to CPUs.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::plan::Workload;
use crate::load::{
    busy::busy_seconds,
    crr, flood,
    rr::{self, Protocol, RrReport},
    span::Span,
    stream,
};

/// Time for flows to be learned and confirmed before they are measured, in every mode. Short
/// connections have none.
pub(super) const WARM_UP: Duration = Duration::from_millis(250);

/// The line that a server prints once it accepts requests.
pub(super) const READY: &str = "ready";

#[derive(Debug, Args)]
pub(super) struct Server {
    workload: Workload,
    bind: SocketAddr,
}

#[derive(Debug, Args)]
pub(super) struct Client {
    workload: Workload,
    server: SocketAddr,
    seconds: f64,
    /// Those whose time counts.
    #[arg(value_delimiter = ',')]
    cpus: Vec<usize>,
}

/// The result of a client.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Done {
    /// Bytes, transactions, connections or datagrams.
    pub(super) count: f64,
    /// Datagrams sent, with those of the warm-up; of other loads `count`.
    pub(super) sent: f64,
    /// The duration of the measurement in seconds.
    pub(super) seconds: f64,
    /// The time the CPUs were busy during the measurement, in seconds.
    pub(super) busy: f64,
}

impl Server {
    pub(super) fn run(&self) -> Result<()> {
        let ready = |_| {
            println!("{READY}");
            Ok(())
        };
        match self.workload {
            Workload::TcpStream1 => stream::serve(1, self.bind, ready),
            Workload::TcpStream8 => stream::serve(8, self.bind, ready),
            Workload::TcpRr => rr::serve(Protocol::Tcp, self.bind, ready),
            Workload::UdpRr | Workload::UdpQuery => rr::serve(Protocol::Udp, self.bind, ready),
            Workload::TcpCrr | Workload::TcpCrr10 => {
                crr::serve(self.workload.requests(), self.bind, ready)
            }
            Workload::UdpPps => flood::serve(self.bind, ready),
        }
    }
}

impl Client {
    pub(super) fn run(&self) -> Result<()> {
        let mut before = busy_seconds(&self.cpus);
        let span = Span {
            warm_up: WARM_UP,
            measured: Duration::try_from_secs_f64(self.seconds)?,
        };
        let (count, sent, seconds) = self.work(span, &mut || before = busy_seconds(&self.cpus))?;
        let busy = busy_seconds(&self.cpus)? - before?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let done = Done {
            count: count as f64,
            sent: sent as f64,
            seconds,
            busy,
        };
        println!("{}", serde_json::to_string(&done)?);
        Ok(())
    }

    fn work(&self, span: Span, begin: &mut dyn FnMut()) -> Result<(u64, u64, f64)> {
        let (count, time) = match self.workload {
            Workload::TcpStream1 => stream::measure(1, self.server, span, begin)?,
            Workload::TcpStream8 => stream::measure(8, self.server, span, begin)?,
            Workload::TcpRr => self.rr(Protocol::Tcp, span, begin)?,
            Workload::UdpRr => self.rr(Protocol::Udp, span, begin)?,
            Workload::UdpQuery => answered(rr::measure_queries(self.server, span, begin)?)?,
            Workload::TcpCrr | Workload::TcpCrr10 => {
                crr::measure(self.workload.requests(), self.server, span.measured)?
            }
            Workload::UdpPps => {
                let (sent, before, time) = flood::measure(self.server, span, begin)?;
                return Ok((sent, before + sent, time.as_secs_f64()));
            }
        };
        Ok((count, count, time.as_secs_f64()))
    }

    fn rr(
        &self,
        protocol: Protocol,
        span: Span,
        begin: &mut dyn FnMut(),
    ) -> Result<(u64, Duration)> {
        answered(rr::measure(protocol, self.server, span, begin)?)
    }
}

/// The requests that were answered, and the time they took.
fn answered(report: RrReport) -> Result<(u64, Duration)> {
    ensure!(
        report.lost * 1000 <= report.transactions,
        "too many requests without an answer: {report:?}"
    );
    Ok((
        report.transactions,
        Duration::try_from_secs_f64(report.seconds)?,
    ))
}
