//! Bytes over TCP connections, as fast as they go, for as long as is asked: unlike iperf3 also for
//! parts of a second.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::span::Span;
use crate::{harness::wait::patient, host::joined};

const WRITE: usize = 128 << 10;
const READ: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads from `streams` connections and reports to each client the number of bytes.
pub fn serve(
    streams: u32,
    bind: SocketAddr,
    ready: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let listener = TcpListener::bind(bind).with_context(|| bind.to_string())?;
    ready(listener.local_addr()?)?;
    let mut threads = Vec::new();
    for _ in 0..streams {
        let stream = listener.accept()?.0;
        threads.push(thread::spawn(move || take(stream)));
    }
    threads.into_iter().try_for_each(joined)
}

fn take(mut stream: TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(patient(PATIENCE)))?;
    let mut buffer = vec![0; READ];
    let mut taken = 0_u64;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(stream.write_all(&taken.to_be_bytes())?),
            length => taken += length as u64,
        }
    }
}

/// Sends over `streams` connections for this long. Bytes of the measurement, which `begin`
/// announces, that the server took, and the time until it said so.
pub fn measure(
    streams: u32,
    server: SocketAddr,
    span: Span,
    begin: &mut dyn FnMut(),
) -> Result<(u64, Duration)> {
    let end = Instant::now() + span.warm_up + span.measured;
    let written = Arc::new(AtomicU64::new(0));
    let sender = || {
        let written = Arc::clone(&written);
        thread::spawn(move || send(server, end, &written))
    };
    let threads: Vec<_> = (0..streams).map(|_| sender()).collect();
    thread::sleep(span.warm_up);
    begin();
    let (start, before) = (Instant::now(), written.load(Ordering::Relaxed));
    let bytes = threads.into_iter().map(joined).sum::<Result<u64>>()?;
    Ok((bytes.saturating_sub(before), start.elapsed()))
}

fn send(server: SocketAddr, end: Instant, written: &AtomicU64) -> Result<u64> {
    let mut stream = TcpStream::connect_timeout(&server, patient(PATIENCE))?;
    stream.set_write_timeout(Some(patient(PATIENCE)))?;
    stream.set_read_timeout(Some(patient(PATIENCE)))?;
    let buffer = vec![0; WRITE];
    while Instant::now() < end {
        stream.write_all(&buffer)?;
        written.fetch_add(WRITE as u64, Ordering::Relaxed);
    }
    stream.shutdown(Shutdown::Write)?;
    let mut taken = [0; 8];
    stream
        .read_exact(&mut taken)
        .context("the server did not say how much it took")?;
    Ok(u64::from_be_bytes(taken))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_was_sent_is_what_was_taken() -> Result<()> {
        let (bound, address) = mpsc::channel();
        let server = thread::spawn(move || {
            serve(2, "127.0.0.1:0".parse()?, |address| {
                bound.send(address).context("nobody waits")
            })
        });
        let (bytes, time) = measure(
            2,
            address.recv()?,
            Span::cold(Duration::from_millis(20)),
            &mut || {},
        )?;
        assert!(
            bytes >= 2 * WRITE as u64 && bytes.is_multiple_of(WRITE as u64),
            "{bytes} bytes"
        );
        assert!(time >= Duration::from_millis(20));
        joined(server)
    }
}
