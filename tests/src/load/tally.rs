//! The count of a stream's numbers: those that arrived, how often, and in what order. No I/O.

use std::{ops::RangeInclusive, time::Duration};

use super::UdpReport;

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    arrived: Vec<bool>,
    received: u64,
    duplicated: u64,
    reordered: u64,
    longest_gap: Duration,
}

impl Tally {
    /// Counts the arrival of `number`, `gap` after the one before.
    pub(super) fn arrived(&mut self, number: u64, gap: Duration) {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        if self.received > 0 {
            self.longest_gap = self.longest_gap.max(gap);
        }
        if index >= self.arrived.len() {
            self.arrived.resize(index + 1, false);
        } else if !self.arrived[index] {
            self.reordered += 1;
        } else {
            self.duplicated += 1;
            return;
        }
        self.arrived[index] = true;
        self.received += 1;
    }

    pub(super) fn is_complete(&self) -> bool {
        self.received >= self.sent
    }

    pub(super) fn report(&self) -> UdpReport {
        let Self {
            sent,
            received,
            duplicated,
            reordered,
            longest_gap,
            ..
        } = *self;
        UdpReport {
            sent,
            received,
            duplicated,
            reordered,
            longest_gap,
            lost: self.lost(),
            ..UdpReport::default()
        }
    }

    fn lost(&self) -> Vec<RangeInclusive<u64>> {
        let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
        let came = |number: u64| {
            usize::try_from(number).is_ok_and(|at| self.arrived.get(at) == Some(&true))
        };
        for number in (0..self.sent).filter(|number| !came(*number)) {
            match ranges.last_mut() {
                Some(range) if *range.end() + 1 == number => *range = *range.start()..=number,
                _ => ranges.push(number..=number),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_duplicates_and_order_are_distinguished() {
        let mut tally = Tally::default();
        for number in [0, 1, 4, 3, 4, 7] {
            tally.arrived(number, Duration::from_millis(number));
        }
        tally.sent = 10;
        let report = tally.report();
        assert_eq!(
            (
                report.sent,
                report.received,
                report.duplicated,
                report.reordered
            ),
            (10, 5, 1, 1)
        );
        assert_eq!(report.lost, [2..=2, 5..=6, 8..=9]);
        assert_eq!(report.lost_count(), 5);
        assert!(!tally.is_complete());
    }
}
