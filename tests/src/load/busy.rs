//! The time that CPUs worked.

use std::{fs, thread};

use anyhow::{Context as _, Result};

/// Seconds that all CPUs of this machine worked since boot, as [`busy_seconds`] has them.
pub fn busy_seconds_of_all() -> Result<f64> {
    let cpus: Vec<usize> = (0..thread::available_parallelism()?.get()).collect();
    busy_seconds(&cpus)
}

/// Seconds that CPUs worked since boot, added up, in steps of 10 ms: user, system, irq and softirq
/// of `/proc/stat`. The time of processes that are nicer than the load is left out, because it is
/// not the load's.
pub fn busy_seconds(cpus: &[usize]) -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let ticks: u64 = cpus
        .iter()
        .map(|cpu| busy_ticks(&text, *cpu))
        .sum::<Result<_>>()?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    Ok(ticks as f64 / 100.0)
}

fn busy_ticks(text: &str, cpu: usize) -> Result<u64> {
    let prefix = format!("cpu{cpu} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
    let line = line.with_context(|| format!("there is no CPU {cpu}"))?;
    let ticks: Vec<u64> = line
        .split(' ')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .context("/proc/stat")?;
    Ok([0, 2, 5, 6]
        .iter()
        .filter_map(|place| ticks.get(*place))
        .sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_nicer_processes_is_not_the_loads() -> Result<()> {
        let text = "cpu  9 9 9 9 9 9 9 9\ncpu0 1 20 300 4000 50000 600000 7000000 0\ncpu1 1 0 1 0 \
            0 0 0 0\n";
        assert_eq!([busy_ticks(text, 0)?, busy_ticks(text, 1)?], [7_600_301, 2]);
        assert!(busy_ticks(text, 2).is_err());
        Ok(())
    }
}
