//! A process that cannot be mistaken for another: pid and start time.

use std::{fmt, fs, time::Duration};

use anyhow::Context as _;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

/// The time a process has to end after a signal.
const GRACE: Duration = Duration::from_secs(3);

/// One process, named for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pid: u32,
    start: u64,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)
    }
}

impl Process {
    #[cfg(test)]
    pub(super) const fn new(pid: u32, start: u64) -> Self {
        Self { pid, start }
    }

    #[cfg(test)]
    pub(super) fn of_this_program() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start: start_time(pid).expect("we are alive"),
        }
    }

    /// Reads `<pid> <start time>` and returns the rest of the line with it.
    pub(super) fn parse(text: &str) -> Option<(Self, &str)> {
        let (pid, rest) = text.split_once(' ')?;
        let (start, what) = rest.split_once(' ').unwrap_or((rest, ""));
        Some((
            Self {
                pid: pid.parse().ok()?,
                start: start.parse().ok()?,
            },
            what,
        ))
    }

    /// Returns true if this very process still exists.
    pub(super) fn is_alive(self) -> bool {
        start_time(self.pid) == Some(self.start)
    }

    /// Ends it: first politely, then not. Returns when it is gone; one that was gone already is no
    /// error.
    pub(super) fn end(self) -> anyhow::Result<()> {
        let Some(handle) = self.open() else {
            return Ok(());
        };
        for signal in [Signal::TERM, Signal::KILL] {
            if pidfd_send_signal(&handle, signal).is_err() || has_ended(&handle)? {
                break;
            }
        }
        anyhow::ensure!(!self.is_alive(), "{self} does not end, not even killed");
        Ok(())
    }

    /// A handle to it. The start time is compared after the handle was taken: what has it then
    /// keeps the pid for as long as the handle is open.
    fn open(self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        self.is_alive().then_some(handle)
    }
}

/// Waits for the end, at most [`GRACE`].
fn has_ended(handle: &OwnedFd) -> anyhow::Result<bool> {
    let timeout = Timespec::try_from(GRACE).context("the grace period is a few seconds")?;
    let mut handles = [PollFd::new(handle, PollFlags::IN)];
    Ok(poll(&mut handles, Some(&timeout)).context("cannot wait for a process to end")? > 0)
}

/// Field 22 of `/proc/<pid>/stat`. A zombie counts as gone: all it waits for is its parent.
fn start_time(pid: u32) -> Option<u64> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The second field, the name in parentheses, may itself contain spaces and parentheses.
fn parse_stat(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let rest = "S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 10";
        assert_eq!(parse_stat(&format!("7 (sh) {rest}")), Some(4711));
        assert_eq!(parse_stat(&format!("7 (a) b (c) {rest}")), Some(4711));
        assert_eq!(parse_stat(&format!("7 (sh) Z{}", &rest[1..])), None);
        assert_eq!(parse_stat("7 (sh"), None);
    }

    #[test]
    fn a_process_is_ended_and_one_with_its_pid_alone_is_not() {
        let mut child = Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("sleep starts");
        let process = Process {
            pid: child.id(),
            start: start_time(child.id()).expect("it runs"),
        };
        Process {
            start: process.start + 1,
            ..process
        }
        .end()
        .expect("nothing to end");
        assert!(process.is_alive());
        process.end().expect("it ends");
        assert!(!process.is_alive());
        child.wait().expect("a status");
    }
}
