//! `flows list --follow`: events of flows, as they happen.

use std::{
    io::{self, Write as _},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use flannel_command::absent;
use flannel_datapath::PinRoot;
use flannel_document as document;
use flannel_flows::{
    events::{FlowEvent, FlowSource, SourceOptions, Waiting},
    monitor::DeviceNames,
};
use flannel_host::{error_chain::chain, signals::Stop};
use flannel_names::ResolvedNames;
use flannel_terminal::wrap;
use tokio::time::{MissedTickBehavior, interval};

use super::{
    list_options::FlowListOptions,
    names::AskedNames,
    remote::{self, RemoteLine},
    rows::FlowEventRow,
};
use crate::{monitor::without_reports, top::print::is_read};

/// Between two looks into the ring buffer.
const PERIOD: Duration = Duration::from_millis(50);
/// Between two readings of the flow tables.
const TABLE_PERIOD: Duration = Duration::from_secs(1);

/// Runs the command to its end. It prints by itself.
pub(super) async fn run(options: &FlowListOptions, pins: PinRoot) -> anyhow::Result<String> {
    let mut stop = Stop::listen().context("cannot listen for signals")?;
    let source = FlowSource::new(
        pins,
        SourceOptions {
            rate: options.follow.rate,
            table_period: TABLE_PERIOD,
            with_ends: true,
        },
    );
    let names = AskedNames::new(options.state.state_dir.clone());
    let devices = DeviceNames::default();
    let mut follower = Follower {
        options,
        source,
        names,
        devices,
        waiting: Waiting::default(),
        shown: 0,
        missed: 0,
        paused: Duration::ZERO,
        problem: None,
        heartbeat: None,
    };
    let ended = tokio::select! {
        ended = follower.follow() => ended,
        _ = stop.wait() => Ok(()),
        () = remote::end(), if options.remote => Ok(()),
    };
    say(&format!(
        "{} events shown; {} packets came faster than --rate, or found the buffer full{}",
        follower.shown,
        follower.missed,
        without_reports(follower.paused)
    ));
    ended.map(|()| String::new())
}

struct Follower<'a> {
    options: &'a FlowListOptions,
    source: FlowSource,
    names: AskedNames,
    devices: DeviceNames,
    waiting: Waiting,
    shown: u64,
    missed: u64,
    paused: Duration,
    problem: Option<String>,
    heartbeat: Option<Instant>,
}

impl Follower<'_> {
    async fn follow(&mut self) -> anyhow::Result<()> {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if !self.options.remote {
            say("following flows; Ctrl-C ends it");
        }
        loop {
            ticks.tick().await;
            let polled = match self.source.poll() {
                Ok(polled) => polled,
                Err(error) => return Err(absent::explain(error, &self.options.state).await),
            };
            self.report_problem();
            self.missed += polled.missed;
            self.paused += polled.paused;
            let now = Instant::now();
            self.waiting.extend(polled.events, now);
            if !self.show_heartbeat(now)? || !self.show(now).await? {
                return Ok(());
            }
        }
    }

    /// Shows that the command goes on, if that is asked for. Returns false if the reader is gone.
    fn show_heartbeat(&mut self, now: Instant) -> anyhow::Result<bool> {
        let is_due = self
            .heartbeat
            .is_none_or(|last| now.duration_since(last) >= remote::PERIOD);
        if !self.options.remote || !is_due {
            return Ok(true);
        }
        self.heartbeat = Some(now);
        is_read(&RemoteLine::heartbeat(self.missed, self.problem.clone()))
    }

    /// Shows the events whose names are known, or that have waited. Returns false if enough was
    /// shown, or the reader is gone.
    async fn show(&mut self, now: Instant) -> anyhow::Result<bool> {
        let addresses = self.waiting.addresses();
        let (names, is_complete) = match addresses.as_slice() {
            [] => return Ok(true),
            _ if self.options.no_names => (ResolvedNames::new(), true),
            addresses => self.names.known(addresses).await,
        };
        let due: Vec<_> = self.waiting.due(is_complete, now).collect();
        for event in due {
            let Some(line) = self.line(&event, &names) else {
                continue;
            };
            self.shown += 1;
            let is_enough = self
                .options
                .follow
                .count
                .is_some_and(|count| self.shown >= count);
            if !is_read(&line)? || is_enough {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The line of an event that matches the filter.
    fn line(&mut self, event: &FlowEvent, names: &ResolvedNames) -> Option<String> {
        let row = FlowEventRow::new(event, names, &mut self.devices);
        if !self.options.filter.takes_event(event, &row.ends()) {
            return None;
        }
        Some(if self.options.output.is_json() {
            document::line(&row) + "\n"
        } else {
            wrap::to_terminal(row.text())
        })
    }

    /// Says once why dropped packets are not seen.
    fn report_problem(&mut self) {
        let of_kernel = || {
            self.source
                .drop_problem()
                .map(|problem| ("packets that the kernel drops are not shown", problem))
        };
        let of_all = self.source.problem();
        let of_all = of_all.map(|problem| {
            (
                "packets that are not replayed, and drops, are not shown",
                problem,
            )
        });
        let problem = of_all
            .or_else(of_kernel)
            .map(|(what, problem)| format!("{what}: {}", chain(problem)));
        if problem != self.problem {
            if let Some(problem) = &problem {
                say(problem);
            }
            self.problem = problem;
        }
    }
}

/// Prints a line on standard error, because the events may be going to standard output.
fn say(line: &str) {
    // A closed standard error must not make the command fail.
    drop(writeln!(io::stderr(), "{line}"));
}
