//! Duration of a load, and the part of it that is measured.

use std::time::{Duration, Instant};

/// A part that is not measured, in which flows are learned and caches filled, and one that is.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Before the measurement.
    pub warm_up: Duration,
    /// The measurement.
    pub measured: Duration,
}

impl Span {
    /// Without a part that is not measured.
    pub const fn cold(measured: Duration) -> Self {
        Self {
            warm_up: Duration::ZERO,
            measured,
        }
    }

    /// Repeats some work to the end; `begin` is called when the measurement begins. How often the
    /// work was done since, and the time that took. The work gets its number, from 1 on.
    pub(crate) fn repeat<E>(
        self,
        begin: &mut dyn FnMut(),
        mut work: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<(u64, Duration), E> {
        let start = Instant::now();
        let mut number = 0;
        while start.elapsed() < self.warm_up {
            number += 1;
            work(number)?;
        }
        begin();
        let (start, before) = (Instant::now(), number);
        while start.elapsed() < self.measured {
            number += 1;
            work(number)?;
        }
        Ok((number - before, start.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_before_the_measurement_does_not_count() {
        let span = Span {
            warm_up: Duration::from_millis(20),
            measured: Duration::from_millis(20),
        };
        let (mut begun_at, mut last) = (0, 0);
        let counter = std::cell::Cell::new(0_u64);
        let (count, time) = span
            .repeat(&mut || begun_at = counter.get(), |number| {
                counter.set(number);
                last = number;
                Ok::<_, ()>(())
            })
            .expect("nothing fails");
        assert!(
            begun_at > 0 && count == last - begun_at && time >= span.measured,
            "{begun_at} {count} {last} {time:?}"
        );
    }
}
