//! Errors of WireGuard devices.

use std::{io, path::PathBuf};

use flannel_netlink::NetlinkError;

/// A WireGuard device that could not be made, read or changed.
#[derive(Debug, thiserror::Error)]
pub enum WireguardError {
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Neither the kernel nor a program has WireGuard.
    #[error(
        "this kernel has no WireGuard (module wireguard, Linux 5.6), and neither wireguard-go nor \
         boringtun-cli is in \
         PATH: load the module, or install one of them"
    )]
    NoImplementation,
    /// The program did not start.
    #[error("{program} cannot make the device {device}: {problem}")]
    NotStarted {
        /// The program.
        program: String,
        /// The device.
        device: String,
        /// The cause, in words.
        problem: String,
    },
    /// The process does not answer.
    #[error("no process answers at {}", socket.display())]
    NoAnswer {
        /// Its socket.
        socket: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The process refused.
    #[error(
        "the process at {} refused: {}",
        socket.display(),
        io::Error::from_raw_os_error(*errno),
    )]
    Refused {
        /// Its socket.
        socket: PathBuf,
        /// Its errno.
        errno: i32,
    },
    /// The process said something else than the protocol has.
    #[error("the process at {} answered {line:?}, which is not understood", socket.display())]
    NotUnderstood {
        /// Its socket.
        socket: PathBuf,
        /// The line, without what may be a key.
        line: String,
    },
}
