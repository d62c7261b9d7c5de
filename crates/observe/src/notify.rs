//! Notifications to the service manager, by systemd's protocol: one datagram per state, to the
//! socket that `NOTIFY_SOCKET` names.
//!
//! `READY=1` is sent when the node is ready for the first time, `STATUS=` with the reason for which
//! it is not ready before that, `STOPPING=1` when a signal ends the agent. Without the variable the
//! agent sends no notifications.

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// The start waits for this reason, which `systemctl status` shows.
    Waiting(String),
    /// Start-up is over.
    Ready,
    /// The end has begun.
    Stopping,
}

impl ServiceState {
    /// The state of a start; `None` if it waits for a reason that is not known.
    fn of_start(status: &Status) -> Option<Self> {
        if status.ready {
            return Some(Self::Ready);
        }
        let error = status.error.as_ref()?;
        Some(Self::Waiting(format!("{}: {error}", status.stage)))
    }

    /// The assignments of the datagram, one in each line.
    fn lines(&self) -> String {
        match self {
            Self::Waiting(reason) => format!("STATUS={}", reason.replace('\n', " ")),
            Self::Ready => "READY=1\nSTATUS=".to_owned(),
            Self::Stopping => "STOPPING=1".to_owned(),
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
        Self {
            socket: std::env::var_os(VARIABLE).filter(|socket| !socket.is_empty()),
        }
    }

    /// Reports for which reason the node is not ready, until it is, and then that. Ends at once if
    /// it never will be.
    pub async fn await_ready(self, mut status: watch::Receiver<Status>) {
        let mut last = None;
        loop {
            let state = ServiceState::of_start(&status.borrow_and_update());
            if let Some(state) = state.as_ref().filter(|_| state != last) {
                self.notify(state);
            }
            if state == Some(ServiceState::Ready) || status.changed().await.is_err() {
                return;
            }
            last = state;
        }
    }

    /// Reports the state. A failure to send is logged as a warning and has no other effect.
    pub fn notify(&self, state: &ServiceState) {
        let Some(socket) = &self.socket else { return };
        match send(socket, &state.lines()) {
            Ok(()) => tracing::debug!(?state, "notified the service manager"),
            Err(error) => {
                tracing::warn!(%error, ?state, "cannot notify the service manager at \
                    {VARIABLE}={}", socket.display());
            }
        }
    }
}

/// A path, or with a leading `@` a name in the abstract namespace.
fn send(socket: &OsStr, line: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(socket)?,
        _ => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "neither an absolute path nor an @name",
            ));
        }
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
        ServiceManager {
            socket: Some(socket.into()),
        }
        .notify(&ServiceState::Ready);
        datagram(listener)
    }

    fn datagram(listener: &UnixDatagram) -> String {
        let mut buffer = [0; 128];
        let length = listener.recv(&mut buffer).expect("a datagram");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn both_kinds_of_socket_are_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let listener = UnixDatagram::bind(&path).expect("a socket");
        assert_eq!(heard(&listener, &path), "READY=1\nSTATUS=");

        let name = format!("flannel-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixDatagram::bind_addr(&address).expect("a socket");
        assert_eq!(heard(&listener, format!("@{name}")), "READY=1\nSTATUS=");
    }

    #[tokio::test]
    async fn a_start_that_waits_says_why_once_for_each_reason() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let listener = UnixDatagram::bind(&path).expect("a socket");
        listener
            .set_read_timeout(Some(std::time::Duration::from_secs(30)))
            .expect("a time limit");
        let mode = flannel_status::ModeStatus::default();
        let (sender, receiver) = watch::channel(Status::without_agent("starting", mode));
        let manager = ServiceManager {
            socket: Some(path.into()),
        };
        let reporting = tokio::spawn(manager.await_ready(receiver));
        let waits = |stage: &str, error: &str| {
            sender.send_modify(|status| {
                (status.stage, status.error) = (stage.to_owned(), Some(error.into()));
            });
        };
        let next = async || {
            let listener = listener.try_clone().expect("the socket");
            tokio::task::spawn_blocking(move || datagram(&listener))
                .await
                .expect("a datagram")
        };
        waits("the network configuration", "etcd does not answer\nat all");
        assert_eq!(
            next().await,
            "STATUS=the network configuration: etcd does not answer at all"
        );
        sender.send_modify(|status| status.pid = Some(1));
        waits("the lease", "all subnets are leased");
        assert_eq!(next().await, "STATUS=the lease: all subnets are leased");
        sender.send_modify(|status| status.ready = true);
        assert_eq!(next().await, "READY=1\nSTATUS=");
        reporting.await.expect("its end");
    }

    #[test]
    fn nobody_listening_is_no_error() {
        ServiceManager { socket: None }.notify(&ServiceState::Stopping);
        for nowhere in ["/nonexistent/notify", "@flannel-nobody", "vsock:2:1"] {
            assert!(send(nowhere.as_ref(), "READY=1").is_err(), "{nowhere}");
            ServiceManager {
                socket: Some(nowhere.into()),
            }
            .notify(&ServiceState::Stopping);
        }
    }
}
