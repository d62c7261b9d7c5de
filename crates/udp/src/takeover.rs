//! The change from a process to its successor: device and socket are passed on, with all packets
//! that wait in them.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    net::UdpSocket,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::Duration,
};

use nix::{
    cmsg_space,
    sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg},
};
use serde::{Deserialize, Serialize};

use crate::{
    client::{connect, read_line, write_line},
    protocol::{Peers, Reply, Request, State},
};

/// The time for each step of the other process.
const PATIENCE: Duration = Duration::from_secs(5);

/// The successor has all it needs.
#[derive(Serialize, Deserialize)]
struct Confirmed {
    confirmed: bool,
}

/// The state of the predecessor, with its device and its socket.
#[derive(Debug)]
pub(crate) struct Handover {
    stream: UnixStream,
    pub(crate) device: File,
    pub(crate) socket: UdpSocket,
    pub(crate) state: State,
    pub(crate) peers: Peers,
}

impl Handover {
    /// Asks the process at a control socket; `None` if there is none.
    pub(crate) fn ask(path: &Path) -> io::Result<Option<Self>> {
        let mut stream = match connect(path, PATIENCE) {
            Ok(stream) => stream,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        write_line(&mut stream, &Request::TakeOver)?;
        let (device, socket) = receive(&stream)?;
        match serde_json::from_str(&read_line(&stream)?).map_err(io::Error::other)? {
            Reply::Handover { state, peers } => Ok(Some(Self {
                stream,
                device: device.into(),
                socket: socket.into(),
                state,
                peers,
            })),
            other => Err(io::Error::other(format!(
                "the former process answered {other:?}"
            ))),
        }
    }

    /// The predecessor may end.
    pub(crate) fn confirm(&mut self) -> io::Result<()> {
        write_line(&mut self.stream, &Confirmed { confirmed: true })
    }
}

/// Passes everything on. Returns true once the successor has it, false if it does not say so.
pub(crate) fn hand_over(
    stream: &mut UnixStream,
    device: &File,
    socket: &UdpSocket,
    state: State,
    peers: Peers,
) -> io::Result<bool> {
    crate::client::set_patience(stream, PATIENCE)?;
    let files = [device.as_raw_fd(), socket.as_raw_fd()];
    let control = [ControlMessage::ScmRights(&files)];
    sendmsg::<()>(
        stream.as_raw_fd(),
        &[IoSlice::new(b"F")],
        &control,
        MsgFlags::empty(),
        None,
    )?;
    write_line(stream, &Reply::Handover { state, peers })?;
    let answer = read_line(stream)?;
    Ok(serde_json::from_str::<Confirmed>(&answer).is_ok_and(|answer| answer.confirmed))
}

/// Receives the two files, which come with one byte before the reply.
fn receive(stream: &UnixStream) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut byte = [0; 1];
    let mut slices = [IoSliceMut::new(&mut byte)];
    let mut space = cmsg_space!([RawFd; 2]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
    let mut files = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel has just opened these descriptors for this process, and nothing
            // else knows them.
            files.extend(
                received
                    .into_iter()
                    .map(|file| unsafe { OwnedFd::from_raw_fd(file) }),
            );
        }
    }
    let files: [OwnedFd; 2] = files
        .try_into()
        .map_err(|_other| io::Error::other("the former process sent no device and socket"))?;
    Ok(files.into())
}
