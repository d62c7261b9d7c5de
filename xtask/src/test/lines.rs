//! Lines of a child's output for as long as the child runs, and not a moment longer.
//!
//! End of file is the wrong thing to wait for: a process that a test left running holds the pipe
//! open. So the end is the child's own, and by then all it wrote is in the pipe.

use std::{io::Read, os::fd::AsFd, process::Child, time::Duration};

use anyhow::Context as _;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    process::{Pid, PidfdFlags, pidfd_open},
};

/// The way in which a child's output came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The child ended, or closed its output.
    Ended,
    /// It wrote nothing for this long. It may still run.
    Silent(Duration),
}

/// Calls `take` with each line, without its newline, until the child has ended, or has written
/// nothing for some time: `limit` at first, and what `take` returns after a line.
///
/// # Errors
/// The child has no standard output to read, or reading failed.
pub(super) fn follow(
    child: &mut Child,
    limit: Option<Duration>,
    take: impl FnMut(&str) -> Option<Duration>,
) -> anyhow::Result<Ending> {
    let output = child
        .stdout
        .take()
        .context("the child's output is not a pipe")?;
    follow_output(child, output, limit, take)
}

/// The same for a child whose output comes through this pipe.
///
/// # Errors
/// Reading failed.
pub(super) fn follow_output(
    child: &Child,
    mut output: impl Read + AsFd,
    mut limit: Option<Duration>,
    mut take: impl FnMut(&str) -> Option<Duration>,
) -> anyhow::Result<Ending> {
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())
        .context("cannot watch the child")?;
    let mut pending = Vec::new();
    let mut buffer = [0; 16 * 1024];
    let ending = loop {
        match wait(&output, &ended, limit)? {
            Wait::Output => {}
            Wait::Ended => break Ending::Ended,
            Wait::Silent(limit) => break Ending::Silent(limit),
        }
        let length = output
            .read(&mut buffer)
            .context("cannot read the child's output")?;
        if length == 0 {
            break Ending::Ended;
        }
        pending.extend_from_slice(&buffer[..length]);
        let whole = pending
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |newline| newline + 1);
        String::from_utf8_lossy(&pending[..whole])
            .lines()
            .for_each(|line| limit = take(line));
        pending.drain(..whole);
    };
    String::from_utf8_lossy(&pending)
        .lines()
        .for_each(|line| limit = take(line));
    Ok(ending)
}

enum Wait {
    Output,
    Ended,
    Silent(Duration),
}

/// Waits for output or the child's end. What was written before the end comes first.
fn wait(output: &impl AsFd, ended: &OwnedFd, limit: Option<Duration>) -> anyhow::Result<Wait> {
    let timeout = limit
        .map(Timespec::try_from)
        .transpose()
        .context("too long a limit")?;
    let mut handles = [
        PollFd::new(output, PollFlags::IN),
        PollFd::new(ended, PollFlags::IN),
    ];
    loop {
        match poll(&mut handles, timeout.as_ref()) {
            Ok(0) if let Some(limit) = limit => return Ok(Wait::Silent(limit)),
            Ok(_) if handles[0].revents().is_empty() => return Ok(Wait::Ended),
            Ok(_) => return Ok(Wait::Output),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for the child's output"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_left_behind_does_not_hold_up_the_end() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 600 & echo $!; printf 'no newline'"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let mut lines = Vec::new();
        let ending = follow(&mut child, None, |line| {
            lines.push(line.to_owned());
            None
        });
        assert_eq!(ending.expect("its output"), Ending::Ended);
        child.wait().expect("a status");
        assert_eq!(lines[1], "no newline");
        let left: i32 = lines[0].parse().expect("a pid");
        let left = Pid::from_raw(left).expect("not zero");
        rustix::process::kill_process(left, rustix::process::Signal::KILL).expect("it still runs");
    }

    #[test]
    fn a_child_that_says_nothing_more_is_not_waited_for() {
        let mut child = Command::new("sh")
            .args(["-c", "echo one; exec sleep 600"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let soon = Duration::from_millis(100);
        let mut lines = Vec::new();
        let ending = follow(&mut child, Some(Duration::from_mins(1)), |line| {
            lines.push(line.to_owned());
            Some(soon)
        });
        child.kill().expect("it still runs");
        child.wait().expect("a status");
        assert_eq!(
            (ending.expect("its output"), lines),
            (Ending::Silent(soon), vec!["one".to_owned()])
        );
    }
}
