//! Connect, some requests with their responses, close: what short connections cost.
//!
//! The server closes first, so that the ports in TIME_WAIT are its one port, and the client's are
//! free again.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

/// The last request: the server ends.
const GOODBYE: [u8; 8] = [0xff; 8];

/// Answers connection after connection, this many requests of each, until a client says goodbye.
pub fn serve(
    requests: u32,
    bind: SocketAddr,
    ready: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let listener = TcpListener::bind(bind).with_context(|| bind.to_string())?;
    ready(listener.local_addr()?)?;
    let mut message = [0; 8];
    while message != GOODBYE {
        let mut stream = listener.accept()?.0;
        for _ in 0..requests {
            stream.read_exact(&mut message)?;
            stream.write_all(&message)?;
        }
    }
    Ok(())
}

/// Makes connections of this many requests one after the other for `duration`. How many
/// connections, and the time they took.
pub fn measure(requests: u32, server: SocketAddr, duration: Duration) -> Result<(u64, Duration)> {
    let start = Instant::now();
    let mut connections = 0_u64;
    while start.elapsed() < duration {
        ask(requests, server, connections.to_be_bytes())
            .with_context(|| format!("connection {connections} to {server}"))?;
        connections += 1;
    }
    let time = start.elapsed();
    ask(requests, server, GOODBYE)?;
    Ok((connections, time))
}

fn ask(requests: u32, server: SocketAddr, request: [u8; 8]) -> Result<()> {
    // No call that a short connection does not need: the caller bounds the time.
    let mut stream = TcpStream::connect(server)?;
    for _ in 1..requests {
        stream.write_all(&request)?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer)?;
        ensure!(answer == request, "{answer:?} came back for {request:?}");
    }
    stream.write_all(&request)?;
    let mut answer = Vec::with_capacity(16);
    stream.read_to_end(&mut answer)?;
    ensure!(answer == request, "{answer:?} came back for {request:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::host::joined;

    #[test]
    fn every_connection_is_answered() -> Result<()> {
        for requests in [1, 10] {
            let (bound, address) = mpsc::channel();
            let ready = move |address| bound.send(address).context("the test has ended");
            let server = thread::spawn(move || serve(requests, "127.0.0.1:0".parse()?, ready));
            let (connections, time) =
                measure(requests, address.recv()?, Duration::from_millis(20))?;
            assert!(
                connections > 0 && time >= Duration::from_millis(20),
                "{connections} in {time:?}"
            );
            joined(server)?;
        }
        Ok(())
    }
}
