//! Running the tools that read and write rules.

use std::{
    env,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Output, Stdio},
    time::Duration,
};

use tokio::{io::AsyncWriteExt as _, process::Command, time::timeout};

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
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(SYSTEM_DIRS.iter().map(PathBuf::from));
    which::which_in_global(name, env::join_paths(dirs).ok()).ok()?.next()
}

/// Returns true if there may be an iptables of the legacy variant. An `iptables` that is no link to
/// the nftables variant counts as legacy, and so does one that is not installed yet.
pub(crate) fn may_be_legacy() -> bool {
    find("iptables-legacy").is_some() || find("iptables").is_none_or(|path| !is_of_nftables(&path))
}

/// By the name of what it is a link to.
pub(crate) fn is_of_nftables(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|real| real.file_name().is_some_and(|name| name.to_string_lossy().contains("nft")))
}

/// Runs a tool to its end with `input` on its standard input; what it printed, if it ended well.
pub(crate) async fn run(tool: &Path, args: &[&str], input: &str) -> Result<String, ToolError> {
    let output = capture(tool, args, input).await?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(ToolError::Refused { tool: name(tool), status: output.status, message })
}

async fn capture(tool: &Path, args: &[&str], input: &str) -> Result<Output, ToolError> {
    let failed = |source| ToolError::Run { tool: name(tool), source };
    // Messages are compared and shown in one language; a tool that hangs does not outlive the wait
    // for it.
    let mut command = Command::new(tool);
    command.args(args).env("LC_ALL", "C").kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
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
        Err(_elapsed) => Err(ToolError::TimedOut { tool: name(tool), seconds: LIMIT.as_secs() }),
    }
}

fn name(tool: &Path) -> String {
    tool.file_name().unwrap_or(OsStr::new("?")).to_string_lossy().into_owned()
}
