//! Errors of commands.

use std::{fmt, io, process::ExitStatus, time::Duration};

use flannel_host::file::FileError;

use super::limits::LIMIT;

/// The key of a command in the network configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// `PreStartupCommand`.
    PreStartup,
    /// `PostStartupCommand`.
    PostStartup,
    /// `SubnetAddCommand`.
    SubnetAdd,
    /// `SubnetRemoveCommand`.
    SubnetRemove,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PreStartup => "PreStartupCommand",
            Self::PostStartup => "PostStartupCommand",
            Self::SubnetAdd => "SubnetAddCommand",
            Self::SubnetRemove => "SubnetRemoveCommand",
        })
    }
}

/// A command that did not do its work, or whose record cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum ExtensionError {
    /// The program cannot be run.
    #[error("{key} cannot be run: {program}: {error}")]
    NotStarted {
        /// The command.
        key: Key,
        /// The program.
        program: String,
        /// The cause.
        error: io::Error,
    },
    /// It was ended.
    #[error("{key} was ended because it ran longer than {} s: {command}", patience.as_secs())]
    Late {
        /// The command.
        key: Key,
        /// Its words.
        command: String,
        /// The time it had.
        patience: Duration,
    },
    /// It says so itself.
    #[error("{key} failed ({status}): {command}: {printed}")]
    Failed {
        /// The command.
        key: Key,
        /// Its words.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its output, cut.
        printed: String,
    },
    /// More than fits in a lease.
    #[error("{key} printed more than {LIMIT} bytes, which are too many for a lease: {command}")]
    TooMuch {
        /// The command.
        key: Key,
        /// Its words.
        command: String,
    },
    /// The record of the peers cannot be read or written.
    #[error(transparent)]
    Record(#[from] FileError),
}
