//! Running the tools that read and write rules.

use std::{
    env,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Output, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
    time::timeout,
};

/// A tool that could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It could not be run.
    #[error("cannot run {tool}: {source}")]
    Run {
        /// The command.
        tool: String,
        /// The error the operating system returned.
        source: io::Error,
    },
    /// It did not end in time.
    #[error("{tool} did not end within {seconds} s")]
    TimedOut {
        /// The command.
        tool: String,
        /// The time it had.
        seconds: u64,
    },
    /// It refused.
    #[error("{tool} ended with {status}: {message}")]
    Refused {
        /// The command.
        tool: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its standard error output.
        message: String,
    },
}

/// The time limit of a tool. It may have to wait for a lock, and large rule sets take their time.
const LIMIT: Duration = Duration::from_secs(30);
/// The directories of administrators' tools, should the search path leave them out.
const SYSTEM_DIRS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Finds a command as a shell would, and then where administrators' tools are.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(SYSTEM_DIRS.iter().map(PathBuf::from));
    which::which_in_global(name, env::join_paths(dirs).ok())
        .ok()?
        .next()
}

/// Returns true if there may be an iptables of the legacy variant. An `iptables` that is not a link
/// to the nftables variant counts as legacy, and so does one that is not installed yet.
pub fn may_be_legacy() -> bool {
    find("iptables-legacy").is_some() || find("iptables").is_none_or(|path| !is_of_nftables(&path))
}

/// By the name of what it is a link to.
pub fn is_of_nftables(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|real| {
        real.file_name()
            .is_some_and(|name| name.to_string_lossy().contains("nft"))
    })
}

/// Runs a tool to its end with `input` on its standard input; what it printed, if it ended well.
pub async fn run(tool: &Path, args: &[&str], input: &str) -> Result<String, ToolError> {
    let output = capture(tool, args, input).await?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(refused(tool, output.status, &output.stderr))
}

/// Runs a tool to its end and passes each line that it prints, without keeping the whole output.
pub async fn each_line(
    tool: &Path,
    args: &[&str],
    mut take: impl FnMut(&str),
) -> Result<(), ToolError> {
    let failed = |source| ToolError::Run {
        tool: name(tool),
        source,
    };
    let mut command = command(tool, args);
    let mut child = command.stdin(Stdio::null()).spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let work = async {
        let read = async {
            let mut lines = BufReader::new(stdout.ok_or(io::ErrorKind::BrokenPipe)?).split(b'\n');
            while let Some(line) = lines.next_segment().await? {
                take(&String::from_utf8_lossy(&line));
            }
            Ok::<(), io::Error>(())
        };
        let complain = async {
            let mut text = Vec::new();
            if let Some(stderr) = stderr {
                // What cannot be read of a message is left out.
                drop(BufReader::new(stderr).read_to_end(&mut text).await);
            }
            text
        };
        let (read, message, status) = tokio::join!(read, complain, child.wait());
        Ok::<_, io::Error>((read, message, status?))
    };
    match timeout(LIMIT, work).await {
        Ok(Ok((read, message, status))) if status.success() => {
            read.map_err(failed).map(|()| drop(message))
        }
        Ok(Ok((_, message, status))) => Err(refused(tool, status, &message)),
        Ok(Err(error)) => Err(failed(error)),
        Err(_elapsed) => Err(ToolError::TimedOut {
            tool: name(tool),
            seconds: LIMIT.as_secs(),
        }),
    }
}

fn refused(tool: &Path, status: ExitStatus, message: &[u8]) -> ToolError {
    let message = String::from_utf8_lossy(message).trim().replace('\n', "; ");
    ToolError::Refused {
        tool: name(tool),
        status,
        message,
    }
}

/// Messages are compared and shown in one language; a tool that hangs does not outlive the wait for
/// it.
fn command(tool: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(tool);
    command.args(args).env("LC_ALL", "C").kill_on_drop(true);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

async fn capture(tool: &Path, args: &[&str], input: &str) -> Result<Output, ToolError> {
    let failed = |source| ToolError::Run {
        tool: name(tool),
        source,
    };
    let mut child = command(tool, args).spawn().map_err(failed)?;
    let stdin = child.stdin.take();
    let work = async {
        let write = async {
            if let Some(mut stdin) = stdin {
                // A tool that ends without reading everything is judged by its exit status.
                drop(stdin.write_all(input.as_bytes()).await);
            }
        };
        tokio::join!(write, child.wait_with_output()).1
    };
    match timeout(LIMIT, work).await {
        Ok(output) => output.map_err(failed),
        Err(_elapsed) => Err(ToolError::TimedOut {
            tool: name(tool),
            seconds: LIMIT.as_secs(),
        }),
    }
}

fn name(tool: &Path) -> String {
    tool.file_name()
        .unwrap_or(OsStr::new("?"))
        .to_string_lossy()
        .into_owned()
}
