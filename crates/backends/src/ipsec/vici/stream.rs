//! Packets of VICI over a Unix socket: one request at a time, and the events that belong to it.

use std::{io, path::Path};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

use super::message::{Section, read_name, write_name};

const COMMAND_REQUEST: u8 = 0;
const COMMAND_RESPONSE: u8 = 1;
const EVENT_REGISTER: u8 = 3;
const EVENT_UNREGISTER: u8 = 4;
const EVENT_CONFIRM: u8 = 5;
const EVENT: u8 = 7;
/// Bytes of the largest packet that charon sends.
const LARGEST: u32 = 512 << 10;

/// A connection. After an error it is of no use.
#[derive(Debug)]
pub(super) struct ViciStream(UnixStream);

impl ViciStream {
    /// Connects to the process at a socket.
    pub(super) async fn connect(socket: &Path) -> io::Result<Self> {
        Ok(Self(UnixStream::connect(socket).await?))
    }

    /// Sends a command. Returns its response; `each` gets every event of this name before that.
    pub(super) async fn request(
        &mut self,
        command: &str,
        message: &Section,
        event: Option<&str>,
        each: &mut (dyn FnMut(Section) + Send),
    ) -> io::Result<Section> {
        if let Some(event) = event {
            self.expect(EVENT_REGISTER, event).await?;
        }
        self.send(COMMAND_REQUEST, command, message).await?;
        let response = loop {
            match self.receive().await? {
                (COMMAND_RESPONSE, body) => break parsed(&body)?,
                (EVENT, body) => {
                    let mut body = &body[..];
                    read_name(&mut body).ok_or_else(malformed)?;
                    each(parsed(body)?);
                }
                (kind, _) => return Err(unexpected(kind)),
            }
        };
        if let Some(event) = event {
            self.expect(EVENT_UNREGISTER, event).await?;
        }
        Ok(response)
    }

    /// Registers for an event, or no more. Events that were on the way are dropped.
    async fn expect(&mut self, kind: u8, event: &str) -> io::Result<()> {
        self.send(kind, event, &Section::default()).await?;
        loop {
            match self.receive().await? {
                (EVENT_CONFIRM, _) => return Ok(()),
                (EVENT, _) => {}
                (kind, _) => return Err(unexpected(kind)),
            }
        }
    }

    async fn send(&mut self, kind: u8, name: &str, message: &Section) -> io::Result<()> {
        let mut bytes = vec![0, 0, 0, 0, kind];
        write_name(name, &mut bytes)?;
        message.write(&mut bytes)?;
        let length = u32::try_from(bytes.len() - 4)
            .ok()
            .filter(|length| *length <= LARGEST)
            .ok_or_else(malformed)?;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        self.0.write_all(&bytes).await
    }

    /// Receives a packet: its type, and the rest.
    async fn receive(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let length = self.0.read_u32().await?;
        if length == 0 || length > LARGEST {
            return Err(malformed());
        }
        let kind = self.0.read_u8().await?;
        let mut body = vec![0; length as usize - 1];
        self.0.read_exact(&mut body).await?;
        Ok((kind, body))
    }
}

fn parsed(body: &[u8]) -> io::Result<Section> {
    Section::read(body).ok_or_else(malformed)
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a malformed packet")
}

fn unexpected(kind: u8) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("a packet of type {kind}: it does not know the command"),
    )
}
