//! Errors of the process that agrees on keys.

use std::{io, path::PathBuf, time::Duration};

use flannel_host::file::FileError;

/// The process could not be started, or asked.
#[derive(Debug, thiserror::Error)]
pub enum IpsecError {
    /// charon is not installed.
    #[error(
        "the backend ipsec needs strongSwan's charon, and it is neither in PATH nor in {places}: \
         install it (Debian: \
         strongswan-charon, strongswan-swanctl and libstrongswan-standard-plugins)"
    )]
    NoProgram {
        /// The directories.
        places: String,
    },
    /// A file of the agent cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process has a port of IKE.
    #[error(
        "charon cannot listen on UDP port {port}: {owner} has it; end that process, or its service"
    )]
    PortTaken {
        /// The port.
        port: u16,
        /// The process, in words.
        owner: String,
    },
    /// Another charon runs in this view of the file system.
    #[error("charon runs already, as process {pid}, which is not the agent's ({}): end it, or its \
        service", file.display())]
    AnotherCharon {
        /// Its process id.
        pid: u32,
        /// The file that says so.
        file: PathBuf,
    },
    /// It ended at once, or does not answer.
    #[error("charon does not start: {problem}")]
    NotStarted {
        /// The cause, in words.
        problem: String,
    },
    /// It was tried a short time ago.
    #[error(
        "charon is started again in {}: {problem}",
        flannel_host::duration::format(wait.as_secs() + 1),
    )]
    Waiting {
        /// The time until then.
        wait: Duration,
        /// The cause of the last failure, in words.
        problem: String,
    },
    /// Nothing listens at its socket.
    #[error("charon does not answer at {}", socket.display())]
    NoAnswer {
        /// Its socket.
        socket: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// It refused, or said what is not understood.
    #[error("charon refused {command}: {problem}")]
    Refused {
        /// The command.
        command: &'static str,
        /// The cause, in its words.
        problem: String,
    },
    /// It does not end.
    #[error("charon, process {pid}, does not end")]
    NotEnded {
        /// Its process id.
        pid: u32,
    },
}
