//! `flannel-agent monitor`: shows packets as the programs see them, while it runs. It needs the
//! pins and no agent.
//!
//! It takes the events at intervals; nothing wakes it. What it cannot write holds it up, and then
//! its lease: a reader that stands still ends the sampling, not the node.

mod names;
mod options;
mod sink;

use std::{
    io::{self, Write as _},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use flannel_common::abi::monitor::Missed;
use flannel_datapath::{PinRoot, kernel::clock, monitor::MonitorMaps};
use flannel_flows::monitor::Seen;
use flannel_host::signals::Stop;
use tokio::time::{MissedTickBehavior, interval};

pub use self::options::MonitorOptions;
use self::{names::FollowedNames, sink::Sink};

/// Between two looks into the ring buffer, which holds a thousand events.
const PERIOD: Duration = Duration::from_millis(20);

/// Between two renewals of the lease, and two looks whether the maps are still those of the
/// programs.
const RENEWAL: Duration = Duration::from_millis(500);

/// Events taken in one turn. Signals and the lease have their turn between.
const AT_ONCE: usize = 4096;

/// Runs the command to its end. It prints by itself.
pub async fn run(options: &MonitorOptions) -> anyhow::Result<String> {
    let mut stop = Stop::listen().context("cannot listen for signals")?;
    let pins = options.pins().await;
    let maps = MonitorMaps::claim(&pins)?;
    let sink = Sink::open(options)?;
    let names = FollowedNames::follow(options.state_dir().to_owned()).await;
    let mut watch = Watch {
        options,
        pins,
        maps,
        sink,
        names,
        shown: 0,
    };
    watch.maps.start(&options.wanted())?;
    print("monitoring; Ctrl-C ends it");
    let ended = tokio::select! {
        ended = watch.follow() => ended,
        _ = stop.wait() => watch.drain().map(drop),
    };
    match ended {
        // Who reads has seen enough.
        Err(error) if is_broken_pipe(&error) => {}
        ended => ended?,
    }
    print(&watch.summary()?);
    Ok(String::new())
}

struct Watch<'a> {
    options: &'a MonitorOptions,
    pins: PinRoot,
    maps: MonitorMaps,
    sink: Sink,
    names: FollowedNames,
    shown: u64,
}

impl Watch<'_> {
    /// Shows packets until there were enough, or the time is over.
    async fn follow(&mut self) -> anyhow::Result<()> {
        let end = self
            .options
            .duration()
            .map(|duration| Instant::now() + duration);
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renewed = Instant::now();
        loop {
            ticks.tick().await;
            if self.drain()? || end.is_some_and(|end| Instant::now() >= end) {
                return Ok(());
            }
            if renewed.elapsed() >= RENEWAL {
                anyhow::ensure!(
                    !self.maps.are_replaced(&self.pins),
                    "the programs' maps were replaced or removed; restart the monitor"
                );
                self.maps.renew()?;
                renewed = Instant::now();
            }
        }
    }

    /// Shows the packets sampled so far. Returns true if that is as many as were asked for.
    fn drain(&mut self) -> anyhow::Result<bool> {
        let FollowedNames { pods, services } = &mut self.names;
        if pods.has_changed().unwrap_or_default() {
            self.sink.name_pods(pods.borrow_and_update().clone());
        }
        if services.has_changed().unwrap_or_default() {
            self.sink
                .name_services(services.borrow_and_update().clone());
        }
        let epoch = clock::monotonic_epoch();
        let snaplen = self.options.snaplen();
        for _ in 0..AT_ONCE {
            if self
                .options
                .count()
                .is_some_and(|count| self.shown >= count)
            {
                self.sink.flush()?;
                return Ok(true);
            }
            let Some(item) = self.maps.next_event() else {
                break;
            };
            if let Some(seen) = Seen::read(&item, snaplen) {
                self.sink.write(&seen, epoch)?;
                self.shown += 1;
            }
        }
        self.sink.flush()?;
        Ok(false)
    }

    fn summary(&self) -> anyhow::Result<String> {
        let Missed { limited, lost } = self.maps.missed()?;
        Ok(format!(
            "{} packets shown; {limited} more came faster than {} a second (--rate), {lost} found \
             the buffer full{}",
            self.shown,
            self.options.wanted().rate,
            without_reports(self.maps.paused())
        ))
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints a line on standard error, because the packets may be going to standard output.
fn print(line: &str) {
    // A closed standard error must not make the command fail.
    drop(writeln!(io::stderr(), "{line}"));
}

/// The end of a summary, if the programs did not report packets for a time; empty otherwise.
pub(crate) fn without_reports(paused: Duration) -> String {
    if paused.is_zero() {
        return String::new();
    }
    format!(
        "; none was reported for {:.1} s, because this command stood still: its output was not \
         taken, or the node is overloaded",
        paused.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_reports_is_printed() {
        assert_eq!(without_reports(Duration::ZERO), "");
        let text = without_reports(Duration::from_millis(2_340));
        assert!(
            text.starts_with("; none was reported for 2.3 s, because"),
            "{text}"
        );
    }
}
