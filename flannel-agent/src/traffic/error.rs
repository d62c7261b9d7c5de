//! Errors of the traffic rules.

use std::{io, process::ExitStatus};

use flannel_netlink::NetlinkError;

/// A rule or route that could not be read, written or removed.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// A tool is not installed.
    #[error("{tool} is not installed here; install the package {package}, or {instead}")]
    Missing {
        /// The command.
        tool: &'static str,
        /// The package that has it on most distributions.
        package: &'static str,
        /// The way out without it.
        instead: &'static str,
    },
    /// A tool could not be run.
    #[error("cannot run {tool}: {source}")]
    Run {
        /// The command.
        tool: String,
        /// The error the operating system returned.
        source: io::Error,
    },
    /// A tool did not end in time.
    #[error("{tool} did not end within {seconds} s")]
    TimedOut {
        /// The command.
        tool: String,
        /// The time it had.
        seconds: u64,
    },
    /// A tool refused.
    #[error("{tool} ended with {status}: {message}")]
    Refused {
        /// The command.
        tool: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its standard error output.
        message: String,
    },
    /// The table holds rules that only nft understands, so it cannot be determined which of ours
    /// are there.
    #[error(
        "iptables cannot read its table {table}, because nft put rules of its own there; move those to another table"
    )]
    Incompatible {
        /// The table.
        table: &'static str,
    },
    /// The rules that are read back differ from those that were written.
    #[error(
        "{what} does not read back as it was written: another process changes it at the same time, or the tool is too new or too old"
    )]
    NotKept {
        /// The chains.
        what: String,
    },
    /// The blackhole route.
    #[error("{0}: {fault}", fault = .0.fault)]
    Route(#[source] NetlinkError),
}
