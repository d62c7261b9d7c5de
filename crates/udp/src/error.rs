//! Errors of the tunnel process, and of who talks to it.

use std::{io, net::SocketAddrV4, path::PathBuf};

/// A failure.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// The kernel or the container has no TUN devices.
    #[error(
        "cannot open /dev/net/tun, which the backend udp needs: load the module tun, and give the \
         container the device"
    )]
    NoTun(#[source] io::Error),
    /// Another process has the device open.
    #[error("another process has the device {name} open: flanneld with its backend udp? End it")]
    InUse {
        /// The device.
        name: String,
    },
    /// The kernel refused the device.
    #[error("cannot use the TUN device {name}")]
    Device {
        /// The device.
        name: String,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The kernel refused the UDP socket.
    #[error("cannot receive at UDP {address}: is another flanneld running, or the port taken?")]
    Socket {
        /// Its address.
        address: SocketAddrV4,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The control socket cannot be opened.
    #[error("cannot open the control socket {}", path.display())]
    Control {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// No process answers at the control socket.
    #[error("no process answers at {}", path.display())]
    NoAnswer {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The process answered with something else.
    #[error("the process at {} answered {text:?}, which is not understood", path.display())]
    NotUnderstood {
        /// Its path.
        path: PathBuf,
        /// The answer.
        text: String,
    },
    /// Packets cannot be read or written any more.
    #[error("{what} cannot be read")]
    Broken {
        /// The device or the socket.
        what: &'static str,
        /// The cause.
        #[source]
        error: io::Error,
    },
}

impl TunnelError {
    pub(crate) fn device(name: &str, error: io::Error) -> Self {
        Self::Device {
            name: name.to_owned(),
            error,
        }
    }
}
