//! The process that carries packets with the backend udp: found, started, asked, ended.
//!
//! The process does not stay a child of the agent: it outlives the agent, and the next agent finds
//! it by its control socket in the state directory. Its own work is the crate `flannel_udp`.

mod backoff;
mod carrier;
mod desired;
mod device;
mod error;
mod peers;
mod process;
mod shared;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use flannel_udp::{Request, TunnelError, ask};

pub use flannel_udp::{Counts, TunnelOptions, run as carry};

pub(crate) use self::carrier::{CarryingTun, PART};
pub use self::{
    backoff::Backoff,
    desired::{DEVICE, Udp, WAY},
    device::UdpSpec,
    error::UdpError,
    peers::UdpTunnel,
    process::{Process, fits},
    shared::SharedUdpStatus,
};

/// The control socket, in the state directory.
const SOCKET: &str = "udp-tunnel.sock";
/// The time for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Returns the path of the control socket.
pub fn control_socket(state_dir: &Path) -> PathBuf {
    state_dir.join(SOCKET)
}

/// Ends the process, with its device, and removes the socket of one that ended by itself.
pub fn remove(control: &Path) -> Result<(), TunnelError> {
    stop(control)?;
    match fs::remove_file(control) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(TunnelError::Control {
            path: control.to_owned(),
            error,
        }),
        _ => Ok(()),
    }
}

/// Ends the process, with its device. Returns false if there is none.
pub fn stop(control: &Path) -> Result<bool, TunnelError> {
    match ask(control, &Request::Stop, PATIENCE) {
        Ok(_) => Ok(true),
        Err(TunnelError::NoAnswer { error, .. })
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
