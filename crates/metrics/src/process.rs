//! Metrics of the process, by the library. It counts CPU time in whole seconds, which an agent may
//! need an hour for: the kernel's own number takes its place.

use std::time::Duration;

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};
use prometheus::{core::Collector as _, process_collector::ProcessCollector, proto::Counter};

use super::page::Page;

const CPU_SECONDS: &str = "process_cpu_seconds_total";

/// Writes them all.
pub(super) fn write(page: &mut Page, process: &ProcessCollector) {
    for mut family in process.collect() {
        if family.name() == CPU_SECONDS
            && let Some(seconds) = cpu_seconds()
        {
            let mut counter = Counter::default();
            counter.set_value(seconds);
            family
                .mut_metric()
                .iter_mut()
                .for_each(|sample| sample.set_counter(counter.clone()));
        }
        page.add(family);
    }
}

/// The CPU time of all threads so far. `None` if the kernel does not say.
fn cpu_seconds() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let microseconds =
        usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Some(Duration::from_micros(u64::try_from(microseconds).ok()?).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_part_of_a_second_is_counted() {
        let before = cpu_seconds().expect("a number");
        let start = Instant::now();
        while cpu_seconds().expect("a number") < before + 0.02 {
            assert!(
                start.elapsed() < Duration::from_mins(1),
                "this loop takes CPU time"
            );
        }
        let (mut page, process) = (Page::default(), ProcessCollector::for_self());
        write(&mut page, &process);
        let text = String::from_utf8(page.text().expect("a text")).expect("UTF-8");
        let line = text
            .lines()
            .find(|line| line.starts_with(CPU_SECONDS))
            .expect("the metric");
        let value: f64 = line
            .split(' ')
            .nth(1)
            .and_then(|value| value.parse().ok())
            .expect("a number");
        assert!(value >= before + 0.02, "{line}");
    }
}
