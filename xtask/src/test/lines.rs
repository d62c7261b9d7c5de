//! Lines of a child's output for as long as the child runs, and not a moment longer.
//!
//! End of file is the wrong thing to wait for: a process that a test left running holds the pipe
//! open. So the end is the child's own, and by then all it wrote is in the pipe.

use std::{
    io::Read as _,
    process::{Child, ChildStdout},
};

use anyhow::Context as _;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::OwnedFd,
    process::{Pid, PidfdFlags, pidfd_open},
};

/// Calls `take` with each line, without its newline, until the child has ended.
///
/// # Errors
/// The child has no standard output to read, or reading failed.
pub(super) fn for_each(child: &mut Child, mut take: impl FnMut(&str)) -> anyhow::Result<()> {
    let mut output = child.stdout.take().context("the child's output is no pipe")?;
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).context("cannot watch the child")?;
    let mut pending = Vec::new();
    let mut buffer = [0; 16 * 1024];
    while is_readable(&output, &ended)? {
        let length = output.read(&mut buffer).context("cannot read the child's output")?;
        if length == 0 {
            break;
        }
        pending.extend_from_slice(&buffer[..length]);
        let whole = pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        String::from_utf8_lossy(&pending[..whole]).lines().for_each(&mut take);
        pending.drain(..whole);
    }
    String::from_utf8_lossy(&pending).lines().for_each(take);
    Ok(())
}

/// Waits for output or the child's end. What was written before the end comes first.
fn is_readable(output: &ChildStdout, ended: &OwnedFd) -> anyhow::Result<bool> {
    let mut handles = [PollFd::new(output, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
    loop {
        match poll(&mut handles, None) {
            Ok(_) => return Ok(!handles[0].revents().is_empty()),
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
        for_each(&mut child, |line| lines.push(line.to_owned())).expect("its output");
        child.wait().expect("a status");
        assert_eq!(lines[1], "no newline");
        let left: i32 = lines[0].parse().expect("a pid");
        let left = Pid::from_raw(left).expect("not zero");
        rustix::process::kill_process(left, rustix::process::Signal::KILL).expect("it still runs");
    }
}
