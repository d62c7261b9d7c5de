//! Waiting for a condition. The only way this crate waits for another process or for the kernel.
//!
//! A deadline ends the wait for what does not come. On a busy machine it is longer: up to six
//! times, while something waits for a CPU ([`super::pressure`]). `FLANNEL_LAB_PATIENCE` (a number,
//! default 1) is the least factor, for slow machines. The two are not multiplied: the
//! message of a wait is to come before a test runner ends the whole test without one.

use std::{
    fmt::Debug,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use crate::harness::pressure::{self, Since};

/// The factor of a deadline on the busiest machine.
const MOST_PATIENCE: f64 = 6.0;
/// The shortest and the longest pause between two readings.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// One reading of a condition: there (with a value) or not yet (with what was seen instead).
pub trait Reading<T> {
    /// The value, or why it is not there yet.
    fn reading(self) -> Result<T, String>;
}

impl<T> Reading<T> for Option<T> {
    fn reading(self) -> Result<T, String> {
        self.ok_or_else(|| "not so".to_owned())
    }
}

impl<T> Reading<T> for Result<T> {
    fn reading(self) -> Result<T, String> {
        self.map_err(|error| format!("{error:#}"))
    }
}

/// Reads until there is a value; after `deadline` an error names `what` and the last reading.
///
/// The longer it waits, the less often it reads (`pause`).
pub fn eventually<T, R: Reading<T>>(
    what: &str,
    deadline: Duration,
    mut read: impl FnMut() -> R,
) -> Result<T> {
    let since = Since::now();
    loop {
        let begun = Instant::now();
        match read().reading() {
            Ok(value) => return Ok(value),
            Err(seen) if is_over(since, deadline) => {
                bail!("{what}: not within {:?}; last: {seen}", since.elapsed());
            }
            Err(_) => thread::sleep(pause(since.elapsed(), begun.elapsed())),
        }
    }
}

/// The pause behind a reading. A reading may be a command of many processes, so it is as long as
/// the reading took: what waits leaves half of a CPU to what it waits for. And it is an eighth of
/// the wait, so that a long wait costs little more than a short one, and ends an eighth too late at
/// most.
fn pause(waited: Duration, reading: Duration) -> Duration {
    let [shortest, longest] = PAUSES;
    shortest.max(reading).max((waited / 8).min(longest))
}

/// Returns true if a deadline has passed: as it is on an idle machine, later on a busy one.
fn is_over(since: Since, deadline: Duration) -> bool {
    let (least, elapsed) = (patience(), since.elapsed());
    elapsed >= deadline.mul_f64(least)
        && (elapsed >= deadline.mul_f64(least.max(MOST_PATIENCE)) || !since.is_busy())
}

/// Reads until `times` readings in a row gave the same value. Needed where a first reading may be
/// passed through on the way elsewhere.
pub fn eventually_stable<T, R>(
    what: &str,
    deadline: Duration,
    times: u32,
    mut read: impl FnMut() -> R,
) -> Result<T>
where
    T: PartialEq + Debug,
    R: Reading<T>,
{
    let mut last: Option<T> = None;
    let mut equal = 0;
    eventually(what, deadline, || match read().reading() {
        Err(seen) => {
            (last, equal) = (None, 0);
            Err(anyhow::Error::msg(seen))
        }
        Ok(value) => {
            equal = if last.as_ref() == Some(&value) {
                equal + 1
            } else {
                1
            };
            if equal >= times {
                return Ok(value);
            }
            let seen = anyhow::anyhow!("{value:?}, {equal} times of {times}");
            last = Some(value);
            Err(seen)
        }
    })
}

/// Reads for `time`, which nothing multiplies; the first reading that does not hold is the error.
pub fn throughout<T, R: Reading<T>>(
    what: &str,
    time: Duration,
    mut read: impl FnMut() -> R,
) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < time {
        let begun = Instant::now();
        if let Err(seen) = read().reading() {
            bail!("{what}: no more after {:?}: {seen}", start.elapsed());
        }
        thread::sleep(pause(time / 8, begun.elapsed()));
    }
    Ok(())
}

/// A time limit that is given away, such as that of a socket: longer in a run with patience, and on
/// a machine that is busy now.
pub fn patient(duration: Duration) -> Duration {
    duration.mul_f64(patience().max(1.0 + (MOST_PATIENCE - 1.0) * pressure::recent()))
}

/// The factor of this run.
fn patience() -> f64 {
    let factor = std::env::var("FLANNEL_LAB_PATIENCE")
        .ok()
        .and_then(|text| text.parse::<f64>().ok());
    factor
        .filter(|factor| factor.is_finite() && *factor > 0.0)
        .unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_passed_through_is_not_stable() {
        let mut readings = [1, 2, 2, 3, 3, 3].into_iter();
        let value = eventually_stable("a number", Duration::from_secs(5), 3, || readings.next());
        assert_eq!(value.expect("three equal readings"), 3);
    }

    #[test]
    fn pauses_grow_with_the_wait_and_with_the_reading() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(0), ms(1)), ms(20));
        assert_eq!(pause(ms(0), ms(150)), ms(150));
        assert_eq!(pause(ms(4_000), ms(1)), ms(500));
        assert_eq!(pause(ms(60_000), ms(1)), ms(1_000));
    }

    #[test]
    fn the_error_names_the_last_reading() {
        let error = eventually("the moon", Duration::ZERO, || {
            Result::<()>::Err(anyhow::anyhow!("cheese"))
        })
        .expect_err("never");
        assert!(
            error.to_string().contains("the moon") && error.to_string().contains("cheese"),
            "{error}"
        );
    }
}
