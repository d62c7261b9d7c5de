//! Connect, request, response, close: what short connections cost.
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

/// Answers connection after connection until a client says goodbye.
pub fn serve(bind: SocketAddr, ready: impl FnOnce(SocketAddr) -> Result<()>) -> Result<()> {
    let listener = TcpListener::bind(bind).with_context(|| bind.to_string())?;
    ready(listener.local_addr()?)?;
    let mut message = [0; 8];
    while message != GOODBYE {
        let mut stream = listener.accept()?.0;
        stream.read_exact(&mut message)?;
        stream.write_all(&message)?;
    }
    Ok(())
}

/// Makes connections one after the other for `duration`. How many, and the time they took.
pub fn measure(server: SocketAddr, duration: Duration) -> Result<(u64, Duration)> {
    let start = Instant::now();
    let mut connections = 0_u64;
    while start.elapsed() < duration {
        ask(server, connections.to_be_bytes()).with_context(|| format!("connection {connections} to {server}"))?;
        connections += 1;
    }
    let time = start.elapsed();
    ask(server, GOODBYE)?;
    Ok((connections, time))
}

fn ask(server: SocketAddr, request: [u8; 8]) -> Result<()> {
    // No call that a short connection does not need: the caller bounds the time.
    let mut stream = TcpStream::connect(server)?;
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
        let (bound, address) = mpsc::channel();
        let server =
            thread::spawn(move || serve("127.0.0.1:0".parse()?, |address| bound.send(address).context("nobody waits")));
        let (connections, time) = measure(address.recv()?, Duration::from_millis(20))?;
        assert!(connections > 0 && time >= Duration::from_millis(20), "{connections} in {time:?}");
        joined(server)
    }
}
