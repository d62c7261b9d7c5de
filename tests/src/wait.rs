//! Waiting for a condition. The only way this crate waits for another process or for the kernel.
//!
//! `FLANNEL_LAB_PATIENCE` (a number, default 1) multiplies every deadline, for slow or busy
//! machines.

use std::{
    fmt::Debug,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

const BETWEEN_READINGS: Duration = Duration::from_millis(20);

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

/// Reads until there is a value; after `deadline` (times the patience) an error names `what` and
/// the last reading.
pub fn eventually<T, R: Reading<T>>(what: &str, deadline: Duration, mut read: impl FnMut() -> R) -> Result<T> {
    let deadline = patient(deadline);
    let start = Instant::now();
    loop {
        match read().reading() {
            Ok(value) => return Ok(value),
            Err(seen) if start.elapsed() >= deadline => bail!("{what}: not within {deadline:?}; last: {seen}"),
            Err(_) => thread::sleep(BETWEEN_READINGS),
        }
    }
}

/// The result of the first of three tries that succeeds. For what a busy machine may spoil once,
/// and a fault spoils each time.
pub fn one_of_three<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..2 {
        match attempt() {
            Err(error) => println!("once more, after: {error:#}"),
            done => return done,
        }
    }
    attempt()
}

/// Reads until `times` readings in a row gave the same value. Needed where a first reading may be
/// passed through on the way elsewhere.
pub fn eventually_stable<T, R>(what: &str, deadline: Duration, times: u32, mut read: impl FnMut() -> R) -> Result<T>
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
            equal = if last.as_ref() == Some(&value) { equal + 1 } else { 1 };
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
pub fn throughout<T, R: Reading<T>>(what: &str, time: Duration, mut read: impl FnMut() -> R) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < time {
        if let Err(seen) = read().reading() {
            bail!("{what}: no more after {:?}: {seen}", start.elapsed());
        }
        thread::sleep(BETWEEN_READINGS);
    }
    Ok(())
}

/// A duration times the patience of this run.
pub fn patient(duration: Duration) -> Duration {
    let factor = std::env::var("FLANNEL_LAB_PATIENCE").ok().and_then(|text| text.parse::<f64>().ok());
    duration.mul_f64(factor.filter(|factor| factor.is_finite() && *factor > 0.0).unwrap_or(1.0))
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
    fn the_error_names_the_last_reading() {
        let error =
            eventually("the moon", Duration::ZERO, || Result::<()>::Err(anyhow::anyhow!("cheese"))).expect_err("never");
        assert!(error.to_string().contains("the moon") && error.to_string().contains("cheese"), "{error}");
    }
}
