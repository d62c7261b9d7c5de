//! Measurements of time, which mean nothing on a busy machine.
//!
//! A deadline ends the wait for what does not come, and may be long. A measurement claims that
//! something takes no longer than so and so, and there load of the machine looks like a fault. So
//! each measurement is accompanied by two others: pressure stall information, and a thread that
//! only wakes and notes how late that was.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use crate::harness::pressure::Since;

/// The time between two wakes of the control measurement.
const WAKE: Duration = Duration::from_millis(5);
/// The delay of a wake from which on the machine counts as busy. On an idle one it is below 2 ms.
const LATE: Duration = Duration::from_millis(25);

/// The tries of a measurement: load may spoil one of them, a fault spoils each.
const TRIES: u32 = 3;

/// Runs a measurement until it holds, three times at most. Where it does not hold and the machine
/// was busy, it is not judged: a line says so, by which `cargo xtask test` repeats the test once
/// and counts it as skipped after that.
pub fn judged(what: &str, mut measure: impl FnMut() -> Result<()>) -> Result<()> {
    for attempt in 1..=TRIES {
        let since = Since::now();
        let (result, latest) = with_control(&mut measure)?;
        let Err(error) = result else { return Ok(()) };
        let reason = reason(since.share(), latest);
        println!("{what}: try {attempt} of {TRIES}: {error:#}");
        match reason {
            Some(reason) if attempt == TRIES => {
                println!("NOT JUDGED: {what}: the machine was busy ({reason})");
            }
            None if attempt == TRIES => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The reason not to judge; `None` on an idle machine.
fn reason(share: f64, latest: Duration) -> Option<String> {
    let is_busy = share >= crate::harness::pressure::BUSY || latest >= LATE;
    is_busy.then(|| {
        format!(
            "pressure {:.0} %, a thread woke {} ms late",
            100.0 * share,
            latest.as_millis()
        )
    })
}

/// Runs `measure`, and returns the longest delay of a thread that wakes during it.
fn with_control<T>(measure: impl FnOnce() -> T) -> Result<(T, Duration)> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let control = scope.spawn(|| {
            let mut latest = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                let start = Instant::now();
                thread::sleep(WAKE);
                latest = latest.max(start.elapsed().saturating_sub(WAKE));
            }
            latest
        });
        let result = measure();
        done.store(true, Ordering::Relaxed);
        let latest = control
            .join()
            .ok()
            .context("the control measurement panicked")?;
        Ok((result, latest))
    })
}

#[cfg(test)]
mod tests {
    use anyhow::{bail, ensure};

    use super::*;

    #[test]
    fn an_idle_machine_judges() {
        assert_eq!(reason(0.05, Duration::from_millis(2)), None);
        assert!(reason(0.5, Duration::ZERO).is_some_and(|reason| reason.contains("pressure 50 %")));
        assert!(
            reason(0.0, Duration::from_millis(40))
                .is_some_and(|reason| reason.contains("40 ms late"))
        );
    }

    #[test]
    fn what_holds_once_holds() {
        let mut tries = 0;
        let measure = || {
            tries += 1;
            ensure!(tries == 2, "try {tries}");
            Ok(())
        };
        judged("a sum", measure).expect("the second try");
        assert_eq!(tries, 2);
    }

    #[test]
    fn the_control_ends_with_the_measurement() {
        let (result, latest) =
            with_control(|| bail!("too slow")).expect("a control") as (Result<()>, Duration);
        assert!(result.is_err() && latest < Duration::from_mins(1));
    }
}
