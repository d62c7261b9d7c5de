//! Notifications to the service manager, by systemd's protocol: one datagram per state, to the
//! socket that `NOTIFY_SOCKET` names.
//!
//! `READY=1` is sent when the node is ready for the first time, `STOPPING=1` when a signal ends the
//! agent. Without the variable the agent sends no notifications.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

use flannel_status::Status;
use tokio::sync::watch;

/// The variable.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// A state that is reported to the service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// Start-up is over.
    Ready,
    /// The end has begun.
    Stopping,
}

impl ServiceState {
    const fn line(self) -> &'static str {
        match self {
            Self::Ready => "READY=1",
            Self::Stopping => "STOPPING=1",
        }
    }
}

/// The service manager's socket, if there is one.
#[derive(Clone, Debug)]
pub struct ServiceManager {
    socket: Option<OsString>,
}

impl ServiceManager {
    /// The one that started us.
    pub fn of_environment() -> Self {
        Self { socket: std::env::var_os(VARIABLE).filter(|socket| !socket.is_empty()) }
    }

    /// Waits until the node is ready, and says so once. Ends at once if it never will be.
    pub async fn await_ready(self, mut status: watch::Receiver<Status>) {
        if status.wait_for(|status| status.ready).await.is_ok() {
            self.notify(ServiceState::Ready);
        }
    }

    /// Reports the state. A failure to send is logged as a warning and has no other effect.
    pub fn notify(&self, state: ServiceState) {
        let Some(socket) = &self.socket else { return };
        match send(socket, state.line()) {
            Ok(()) => tracing::debug!(state = state.line(), "notified the service manager"),
            Err(error) => {
                tracing::warn!(%error, "cannot notify the service manager {} at {VARIABLE}={}", state.line(), socket.display());
            }
        }
    }
}

/// A path, or with a leading `@` a name in the abstract namespace.
fn send(socket: &OsStr, line: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(socket)?,
        _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "neither an absolute path nor an @name")),
    };
    let datagram = UnixDatagram::unbound()?;
    // A manager that does not read must not hold us up.
    datagram.set_nonblocking(true)?;
    datagram.send_to_addr(line.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(listener: &UnixDatagram, socket: impl Into<OsString>) -> String {
        ServiceManager { socket: Some(socket.into()) }.notify(ServiceState::Ready);
        let mut buffer = [0; 64];
        let length = listener.recv(&mut buffer).expect("a datagram");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn both_kinds_of_socket_are_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let listener = UnixDatagram::bind(&path).expect("a socket");
        assert_eq!(heard(&listener, &path), "READY=1");

        let name = format!("flannel-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixDatagram::bind_addr(&address).expect("a socket");
        assert_eq!(heard(&listener, format!("@{name}")), "READY=1");
    }

    #[test]
    fn nobody_listening_is_no_error() {
        ServiceManager { socket: None }.notify(ServiceState::Stopping);
        for nowhere in ["/nonexistent/notify", "@flannel-nobody", "vsock:2:1"] {
            assert!(send(nowhere.as_ref(), "READY=1").is_err(), "{nowhere}");
            ServiceManager { socket: Some(nowhere.into()) }.notify(ServiceState::Stopping);
        }
    }
}
