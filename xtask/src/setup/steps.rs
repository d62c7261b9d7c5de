//! Progress of a set-up: which step of how many, how far it is, and how long it took.

use std::{
    path::PathBuf,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// Time between two lines about one step.
const INTERVAL: Duration = Duration::from_secs(10);

/// Counts the steps of one phase as they run.
#[derive(Debug)]
pub(crate) struct Steps {
    phase: &'static str,
    done: usize,
    total: usize,
    started: Instant,
    log: Option<PathBuf>,
}

impl Steps {
    /// A phase of `total` steps, timed from now.
    pub(crate) fn new(phase: &'static str, total: usize) -> Self {
        Self {
            phase,
            done: 0,
            total,
            started: Instant::now(),
            log: None,
        }
    }

    /// Names the log of the steps at the start of each.
    pub(crate) fn with_log(self, log: PathBuf) -> Self {
        Self {
            log: Some(log),
            ..self
        }
    }

    /// Announces a step, runs it, and says how long the phase has taken so far.
    pub(crate) fn run<T>(
        &mut self,
        what: &str,
        step: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.done += 1;
        println!("{}{} ...", self.start_of_line(what), self.log_note());
        let result = step()?;
        let elapsed = self.started.elapsed().as_secs_f32();
        println!("{}, {elapsed:.1} s so far", self.start_of_line("done"));
        Ok(result)
    }

    /// Runs a step as [`Steps::run`] does, and prints its progress every ten seconds.
    pub(crate) fn run_reporting<T>(
        &mut self,
        what: &str,
        progress: impl Fn() -> String + Sync,
        step: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let line = format!("{} [{}/{}]: {what}", self.phase, self.done + 1, self.total);
        self.run(what, || {
            let report = |elapsed: Duration| {
                println!("{line}: {}, {:.0} s", progress(), elapsed.as_secs_f32());
            };
            while_reporting(INTERVAL, report, step)
        })
    }

    fn start_of_line(&self, what: &str) -> String {
        format!("{} [{}/{}]: {what}", self.phase, self.done, self.total)
    }

    fn log_note(&self) -> String {
        self.log
            .as_ref()
            .map_or_else(String::new, |log| format!(" (log: {})", log.display()))
    }
}

/// Runs `work`, and calls `report` with the time since the start after each interval.
fn while_reporting<T>(
    interval: Duration,
    report: impl Fn(Duration) + Sync,
    work: impl FnOnce() -> T,
) -> T {
    thread::scope(|scope| {
        let (running, has_ended) = mpsc::channel::<()>();
        let report = &report;
        scope.spawn(move || {
            let start = Instant::now();
            while has_ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                report(start.elapsed());
            }
        });
        let result = work();
        drop(running);
        result
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn the_log_is_named_at_the_start_of_a_step() {
        let steps = Steps::new("cluster", 9);
        assert_eq!(steps.log_note(), "");
        assert_eq!(
            steps.with_log("a/setup.log".into()).log_note(),
            " (log: a/setup.log)"
        );
    }

    #[test]
    fn reports_come_while_the_work_runs() {
        let (sender, reports) = mpsc::channel();
        let sender = Mutex::new(sender);
        let report = |elapsed| {
            let _ = sender.lock().expect("no panic").send(elapsed);
        };
        let wait = || {
            [
                reports.recv().expect("a report"),
                reports.recv().expect("a report"),
            ]
        };
        let [first, second] = while_reporting(Duration::from_millis(1), report, wait);
        assert!(first < second);
    }

    #[test]
    fn short_work_has_no_report() {
        let report = |_| panic!("a report");
        assert_eq!(while_reporting(Duration::from_hours(1), report, || 7), 7);
    }
}
