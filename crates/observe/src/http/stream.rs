//! A connection that is closed by a reset if it got no answer.
//!
//! After a normal close the kernel would keep each for a minute (`TCP_TIMEWAIT_LEN` in
//! [include/net/tcp.h, Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/net/tcp.h):
//! `TIME_WAIT`, `FIN_WAIT2`), and a client that opens connections without end could fill the host's
//! table of these.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Makes the kernel discard a connection at once when it is closed.
pub(super) fn reset_on_close(stream: &TcpStream) {
    if let Err(error) = stream.set_zero_linger() {
        tracing::debug!(%error, "a connection is not closed by a reset");
    }
}

#[derive(Debug)]
pub(super) struct ResetUnlessAnswered {
    stream: TcpStream,
    answered: bool,
}

impl ResetUnlessAnswered {
    pub(super) const fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            answered: false,
        }
    }

    fn answering(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        let this = self.get_mut();
        this.answered = true;
        Pin::new(&mut this.stream)
    }
}

impl Drop for ResetUnlessAnswered {
    fn drop(&mut self) {
        if !self.answered {
            reset_on_close(&self.stream);
        }
    }
}

impl AsyncRead for ResetUnlessAnswered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for ResetUnlessAnswered {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.answering().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.answering().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
