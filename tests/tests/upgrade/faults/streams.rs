//! Streams of numbered datagrams between all pods, and the faults that happened to each number.

use std::{ops::Range, time::Duration};

use anyhow::{Result, ensure};
use flannel_tests::{
    Pod, eventually,
    load::{UdpLoad, UdpReport, UdpRun},
};

use super::{kinds::Kind, tally::Tally};

const LOAD: UdpLoad = UdpLoad {
    pps: 200,
    duration: Duration::from_mins(6),
    payload: 64,
};
const SOON: Duration = Duration::from_secs(20);

/// A stream from the pod of one node to that of another.
struct Stream {
    between: [usize; 2],
    run: UdpRun,
    faults: Vec<During>,
}

/// The numbers that were sent during a fault.
struct During {
    kind: &'static Kind,
    at: usize,
    numbers: Range<u64>,
    may_lose: bool,
}

/// A stream from each pod to each other one.
pub(super) struct Streams(Vec<Stream>);

impl Streams {
    pub(super) fn start(pods: &[&Pod]) -> Result<Self> {
        let mut streams = Vec::new();
        for (from, sender) in pods.iter().enumerate() {
            for (to, receiver) in pods.iter().enumerate().filter(|(to, _)| *to != from) {
                let run = UdpRun::start(sender, receiver, receiver.ip(), LOAD)?;
                streams.push(Stream {
                    between: [from, to],
                    run,
                    faults: Vec::new(),
                });
            }
        }
        Ok(Self(streams))
    }

    /// The numbers that come next.
    pub(super) fn sent(&self) -> Vec<u64> {
        self.0.iter().map(|stream| stream.run.sent()).collect()
    }

    /// Waits until each stream has sent this number of further datagrams.
    pub(super) fn wait_sent(&self, count: u64) -> Result<()> {
        let before = self.sent();
        eventually("more datagrams", SOON, || {
            let now = self.sent();
            ensure!(
                now.iter()
                    .zip(&before)
                    .all(|(now, before)| *now >= before + count),
                "{now:?} after {before:?}"
            );
            Ok(())
        })
    }

    /// Waits until a datagram that was sent after this call has arrived in each stream. Returns the
    /// numbers behind these.
    pub(super) fn wait_arrived(&self) -> Result<Vec<u64>> {
        let sent = self.sent();
        eventually("datagrams of each stream", SOON, || {
            let arrived: Vec<_> = self.0.iter().map(|stream| stream.run.arrived()).collect();
            let all = arrived
                .iter()
                .zip(&sent)
                .all(|(arrived, sent)| arrived > sent);
            ensure!(all, "{arrived:?} after {sent:?}");
            Ok(arrived)
        })
    }

    /// Notes which numbers were sent during a fault at a node. The datagram before the first one
    /// may have been on its way as the fault began.
    pub(super) fn note(&mut self, kind: &'static Kind, at: usize, begin: &[u64], end: &[u64]) {
        for (stream, (begin, end)) in self.0.iter_mut().zip(begin.iter().zip(end)) {
            let may_lose = kind.loss.permits(at, stream.between);
            stream.faults.push(During {
                kind,
                at,
                numbers: begin.saturating_sub(1)..*end,
                may_lose,
            });
        }
    }

    /// Ends the streams, and counts what was lost by which fault.
    pub(super) fn stop(self, tally: &mut Tally) -> Result<()> {
        for Stream {
            between: [from, to],
            run,
            faults,
        } in self.0
        {
            let report = run.stop()?;
            tally.add_stream(&report);
            ensure!(
                report.duplicated == 0,
                "datagrams from {from} to {to} arrived twice: {report:?}"
            );
            count_losses(
                &report,
                &faults,
                &format!("from node {from} to node {to}"),
                tally,
            );
        }
        Ok(())
    }
}

fn count_losses(report: &UdpReport, faults: &[During], between: &str, tally: &mut Tally) {
    for number in report.lost.iter().cloned().flatten() {
        match faults.iter().find(|fault| fault.numbers.contains(&number)) {
            Some(During {
                kind,
                may_lose: true,
                ..
            }) => tally.lost(kind),
            Some(During {
                kind, at, numbers, ..
            }) => {
                let place = format!("{between}, during `{}` at node {at}", kind.name);
                tally.complain(place, || format!("{number} of {numbers:?}"));
            }
            None => {
                let before = faults.iter().rfind(|fault| fault.numbers.end <= number);
                let before = before.map_or("before all faults".to_owned(), |fault| {
                    format!("after `{}`", fault.kind.name)
                });
                tally.complain(format!("{between}, {before}"), || number.to_string());
            }
        }
    }
}
