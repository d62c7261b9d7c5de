//! The CPU time of a process that has ended and is not waited for yet.

use std::{fs, process::Child, time::Duration};

/// The clock ticks of `/proc/<pid>/stat` in a second, on every architecture of Linux that is built
/// for (`USER_HZ`, proc_pid_stat(5)).
const TICKS: u64 = 100;

/// The time of all CPUs that it and its children took; zero if that cannot be read.
pub(crate) fn of_ended(child: &Child) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    Duration::from_millis(ticks(&stat).unwrap_or_default() * 1000 / TICKS)
}

/// Fields 14 to 17: time in user and in kernel mode, and that of children that were waited for.
fn ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name
        .split(' ')
        .skip(11)
        .take(4)
        .map(|field| field.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_time_and_that_of_children_add_up() {
        let stat = "7 (a b) Z 1 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 4711 9 10";
        assert_eq!(ticks(stat), Some(100));
        assert_eq!(ticks("7 (sh"), None);
    }
}
