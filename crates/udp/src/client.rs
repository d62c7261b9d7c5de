//! The other end of the control socket.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use crate::{
    error::TunnelError,
    protocol::{Reply, Request},
};

/// Bytes of a line, at most: peers of a large cluster.
pub(crate) const MAX_LINE: u64 = 16 << 20;

/// Asks the process at a control socket and waits for its reply for so long.
pub fn ask(path: &Path, request: &Request, patience: Duration) -> Result<Reply, TunnelError> {
    let no_answer = |error| TunnelError::NoAnswer {
        path: path.to_owned(),
        error,
    };
    let mut stream = connect(path, patience).map_err(no_answer)?;
    write_line(&mut stream, request).map_err(no_answer)?;
    let text = read_line(&stream).map_err(no_answer)?;
    serde_json::from_str(&text).map_err(|_unknown| TunnelError::NotUnderstood {
        path: path.to_owned(),
        text: text.chars().take(200).collect(),
    })
}

pub(crate) fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    set_patience(&stream, patience)?;
    Ok(stream)
}

pub(crate) fn set_patience(stream: &UnixStream, patience: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))
}

pub(crate) fn write_line(stream: &mut UnixStream, value: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)
}

pub(crate) fn read_line(stream: &UnixStream) -> io::Result<String> {
    let mut text = String::new();
    let read = BufReader::new(stream.take(MAX_LINE)).read_line(&mut text)?;
    if read == 0 || !text.ends_with('\n') {
        Err(io::ErrorKind::UnexpectedEof.into())
    } else {
        Ok(text)
    }
}
