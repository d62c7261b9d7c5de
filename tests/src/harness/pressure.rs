//! The load of the machine, by the kernel's pressure stall information (PSI, Linux 4.20;
//! <https://docs.kernel.org/accounting/psi.html>).
//!
//! A kernel without it, or one that was booted with `psi=0`, counts as idle.

use std::{
    fs,
    time::{Duration, Instant},
};

/// The share of time in which something waited for a CPU, from which on a machine counts as busy.
/// Two idle CPUs with one test have less than 0.05.
pub const BUSY: f64 = 0.2;

const CPU: &str = "/proc/pressure/cpu";

/// A moment, from which the share is counted.
#[derive(Clone, Copy, Debug)]
pub struct Since {
    start: Instant,
    stalled: Duration,
}

impl Since {
    /// The present.
    pub fn now() -> Self {
        Self {
            start: Instant::now(),
            stalled: stalled().unwrap_or_default(),
        }
    }

    /// Returns the time that has passed.
    pub fn elapsed(self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the share of that time in which something waited for a CPU, from 0 to 1.
    pub fn share(self) -> f64 {
        let stalled = stalled().unwrap_or_default().saturating_sub(self.stalled);
        (stalled.as_secs_f64() / self.elapsed().as_secs_f64().max(0.001)).min(1.0)
    }

    /// Returns true if the machine was busy in that time.
    pub fn is_busy(self) -> bool {
        self.share() >= BUSY
    }
}

/// Returns the share of the last ten seconds, from 0 to 1.
pub fn recent() -> f64 {
    let text = fs::read_to_string(CPU).unwrap_or_default();
    field(&text, "avg10=")
        .and_then(|value| value.parse::<f64>().ok())
        .map_or(0.0, |percent| percent / 100.0)
}

/// The time since boot in which something waited for a CPU.
fn stalled() -> Option<Duration> {
    field(&fs::read_to_string(CPU).ok()?, "total=")?
        .parse()
        .ok()
        .map(Duration::from_micros)
}

/// A field of the line `some`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split(' ').find_map(|field| field.strip_prefix(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_line_some() {
        let text = "some avg10=9.71 avg60=3.92 avg300=1.60 total=7483250\nfull avg10=0.10 \
            avg60=0.00 total=2\n";
        assert_eq!(
            (field(text, "avg10="), field(text, "total=")),
            (Some("9.71"), Some("7483250"))
        );
        assert_eq!(field("", "total="), None);
    }

    #[test]
    fn a_share_is_between_nothing_and_all() {
        let share = Since::now().share();
        assert!((0.0..=1.0).contains(&share), "{share}");
    }
}
