//! The files that a lab leaves for the report of a failed test: the ends of its logs, and the
//! status of each agent that still answers.
//!
//! `FLANNEL_TEST_REPORT` names a directory for it, which `cargo xtask test` gives to each test and
//! removes after one that passed. A lab cannot know which its test will be.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};

/// The end of a log that is kept, in bytes.
const LOG: u64 = 8 << 10;
/// The beginning of a status that is kept, in bytes.
const STATUS: u64 = 3 << 10;
/// The time that an agent has for its answer.
const ANSWER: Duration = Duration::from_millis(500);

/// Keeps it for a lab with these logs, whose hosts are held by these processes. What cannot be read
/// is left out: the test may be about just that.
pub(super) fn keep(lab: &str, logs: &Path, holders: impl Iterator<Item = u32>) {
    let Some(dir) = env::var_os("FLANNEL_TEST_REPORT").map(PathBuf::from) else {
        return;
    };
    drop(keep_in(&dir, lab, logs, holders));
}

fn keep_in(dir: &Path, lab: &str, logs: &Path, holders: impl Iterator<Item = u32>) -> Result<()> {
    fs::create_dir_all(dir)?;
    for holder in holders {
        // Of a lab without agents, and of a node whose agent has ended, there is none.
        if let Ok(status) = status(holder) {
            fs::write(
                dir.join(format!("{lab}-status-of-the-agent-in-{holder}")),
                status,
            )?;
        }
    }
    for entry in logs.read_dir()?.filter_map(Result::ok) {
        // A holder's log is that of a shell without output.
        let text = end_of(&entry.path())?;
        if !text.is_empty() {
            fs::write(
                dir.join(format!("{lab}-{}", entry.file_name().to_string_lossy())),
                text,
            )?;
        }
    }
    Ok(())
}

/// The answer of the agent with the usual state directory in a host.
fn status(holder: u32) -> Result<String> {
    let mut socket = UnixStream::connect(format!("/proc/{holder}/root/run/flannel/agent.sock"))?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.write_all(b"{\"request\":\"status\"}\n")?;
    let mut answer = String::new();
    BufReader::new(socket.take(STATUS)).read_line(&mut answer)?;
    Ok(answer)
}

fn end_of(path: &Path) -> Result<Vec<u8>> {
    let mut file = fs::File::open(path).with_context(|| path.display().to_string())?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG)))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_logs_are_kept() -> Result<()> {
        let (logs, dir) = (tempfile::tempdir()?, tempfile::tempdir()?);
        fs::write(
            logs.path().join("agent-a.log"),
            format!("{}the end", "x".repeat(20 << 10)),
        )?;
        fs::write(logs.path().join("holder.log"), "")?;
        keep_in(
            dir.path(),
            "lab-1",
            logs.path(),
            [std::process::id()].into_iter(),
        )?;
        let text = fs::read_to_string(dir.path().join("lab-1-agent-a.log"))?;
        assert!(
            text.len() == 8 << 10 && text.ends_with("the end"),
            "{} bytes",
            text.len()
        );
        assert_eq!(dir.path().read_dir()?.count(), 1);
        Ok(())
    }
}
