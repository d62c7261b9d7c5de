//! The results: times, losses and recoveries of each kind of fault.

use std::{collections::BTreeMap, fmt, time::Duration};

use anyhow::{Result, bail};
use flannel_tests::load::UdpReport;

use super::kinds::Kind;

/// The results of one kind.
#[derive(Debug, Default)]
struct Row {
    times: u32,
    lost: u64,
    longest: Duration,
}

/// The results of all kinds.
#[derive(Debug, Default)]
pub(super) struct Tally {
    rows: BTreeMap<&'static str, Row>,
    sent: u64,
    longest_gap: Duration,
    /// Packets that full queues of the whole machine lost under one set of streams.
    backlog_drops: u64,
    /// Losses that nothing permits, by place and fault: their number, and the place of the first
    /// one among what was sent during the fault.
    complaints: BTreeMap<String, (u64, String)>,
}

impl Tally {
    pub(super) fn recovered(&mut self, kind: &Kind, after: Duration) {
        let row = self.rows.entry(kind.name).or_default();
        row.times += 1;
        row.longest = row.longest.max(after);
    }

    pub(super) fn add_stream(&mut self, report: &UdpReport) {
        self.sent += report.sent;
        self.longest_gap = self.longest_gap.max(report.longest_gap);
        self.backlog_drops = self.backlog_drops.max(report.backlog_drops);
    }

    pub(super) fn lost(&mut self, kind: &Kind) {
        self.rows.entry(kind.name).or_default().lost += 1;
    }

    pub(super) fn complain(&mut self, place: String, first: impl FnOnce() -> String) {
        let (lost, _) = self.complaints.entry(place).or_insert_with(|| (0, first()));
        *lost += 1;
    }

    /// Fails if a datagram was lost by what loses none. `drops` describes what the nodes dropped.
    pub(super) fn judge(&self, drops: impl FnOnce() -> Result<Vec<String>>) -> Result<()> {
        if self.complaints.is_empty() {
            return Ok(());
        }
        bail!(
            "lost: {:#?}; full queues of the machine: {}; dropped: {:#?}",
            self.complaints,
            self.backlog_drops,
            drops()?
        )
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<36} {:>5} {:>8} {:>12}",
            "fault", "times", "lost", "recovered in"
        )?;
        for (
            name,
            Row {
                times,
                lost,
                longest,
            },
        ) in &self.rows
        {
            writeln!(
                f,
                "{name:<36} {times:>5} {lost:>8} {:>10.2} s",
                longest.as_secs_f64()
            )?;
        }
        let Self {
            sent, longest_gap, ..
        } = self;
        write!(
            f,
            "{sent} datagrams; longest gap between two of a stream {longest_gap:?}"
        )
    }
}
