//! A TCP connection that carries known bytes both ways at once. Each byte has to arrive as it was
//! sent, even if the path changes during the transfer. Neither end closes before both have
//! everything: a connection that is half closed is the kernel's.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use crate::{Host, harness::wait::patient, host::joined};

/// Sent and checked at once, and the unit of the report.
pub const BLOCK: usize = 1 << 16;
/// Every byte of the block behind the last one.
const GOODBYE: u8 = 0xff;
/// A connection on which nothing moves for so long is broken.
const SILENCE: Duration = Duration::from_secs(20);
const MOST_TIME: Duration = Duration::from_mins(2);

/// The amount of data to send, and its rate.
#[derive(Clone, Copy, Debug)]
pub struct BulkLoad {
    /// Blocks each way; it ends with them.
    pub blocks: u64,
    /// Blocks a second each way at most.
    pub rate: Option<u32>,
}

impl BulkLoad {
    /// As fast as it goes.
    pub const fn blocks(blocks: u64) -> Self {
        Self { blocks, rate: None }
    }

    /// Returns a load of `rate` blocks a second, until it is stopped.
    pub const fn steady(rate: u32) -> Self {
        Self {
            blocks: u64::MAX,
            rate: Some(rate),
        }
    }
}

/// The data that arrived in one direction.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Blocks, all as they were sent.
    pub blocks: u64,
    /// The longest time between two of them.
    pub longest_gap: Duration,
}

/// A connection that is in use.
#[derive(Debug)]
pub struct Bulk {
    stop: Arc<AtomicBool>,
    arrived: [Arc<AtomicU64>; 2],
    senders: Vec<JoinHandle<Result<()>>>,
    receivers: Vec<JoinHandle<Result<Arrived>>>,
}

/// Sends `blocks` blocks each way and waits until all have arrived.
pub fn transfer(from: &Host, to: &Host, at: SocketAddr, blocks: u64) -> Result<[Arrived; 2]> {
    Bulk::start(from, to, at, None, BulkLoad::blocks(blocks))?.wait()
}

impl Bulk {
    /// Connects `from` to a listener at `at` of `to`; `service` is where the client sends instead,
    /// if given.
    pub fn start(
        from: &Host,
        to: &Host,
        at: SocketAddr,
        service: Option<SocketAddr>,
        load: BulkLoad,
    ) -> Result<Self> {
        let listener = to.bound(at, TcpListener::bind)?;
        let target = service.map_or_else(|| listener.local_addr(), Ok)?;
        let client =
            from.enter(|| TcpStream::connect_timeout(&target, patient(Duration::from_secs(5))))?;
        let client = client.with_context(|| format!("{} to {target}", from.name()))?;
        let (server, _) = listener.accept()?;
        let (stop, arrived) = (
            Arc::<AtomicBool>::default(),
            <[Arc<AtomicU64>; 2]>::default(),
        );
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for (way, sender, receiver, arrived) in [
            (0, &client, &server, &arrived[0]),
            (1, &server, &client, &arrived[1]),
        ] {
            for end in [sender, receiver] {
                end.set_read_timeout(Some(patient(SILENCE)))?;
                end.set_write_timeout(Some(patient(SILENCE)))?;
            }
            let (sender, receiver) = (sender.try_clone()?, receiver.try_clone()?);
            let (stop, arrived) = (Arc::clone(&stop), Arc::clone(arrived));
            senders.push(thread::spawn(move || send(&sender, way, load, &stop)));
            receivers.push(thread::spawn(move || receive(&receiver, way, &arrived)));
        }
        Ok(Self {
            stop,
            arrived,
            senders,
            receivers,
        })
    }

    /// Blocks that have arrived so far: there, back.
    pub fn arrived(&self) -> [u64; 2] {
        self.arrived
            .each_ref()
            .map(|way| way.load(Ordering::Relaxed))
    }

    /// Lets both ends close and waits until all that was sent has arrived. What arrived: there,
    /// back.
    pub fn stop(self) -> Result<[Arrived; 2]> {
        self.stop.store(true, Ordering::Relaxed);
        self.wait()
    }

    /// Waits for the end of the load.
    pub fn wait(self) -> Result<[Arrived; 2]> {
        let receivers: Vec<_> = self.receivers.into_iter().map(joined).collect();
        for sender in self.senders {
            joined(sender).context("sending")?;
        }
        let mut arrived = receivers
            .into_iter()
            .map(|receiver| receiver.context("receiving"));
        let mut next = || arrived.next().context("two directions")?;
        Ok([next()?, next()?])
    }
}

/// The bytes of a block, which no other block has, nor the same one at another place.
fn block(way: u32, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    for (word, at) in bytes.chunks_exact_mut(8).zip(number * BLOCK as u64 + 1..) {
        word.copy_from_slice(
            &at.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(way * 7)
                .to_be_bytes(),
        );
    }
    bytes
}

fn send(mut to: &TcpStream, way: u32, load: BulkLoad, stop: &AtomicBool) -> Result<()> {
    let start = Instant::now();
    let mut number = 0;
    while number < load.blocks && !stop.load(Ordering::Relaxed) {
        ensure!(start.elapsed() < MOST_TIME, "nobody ended the load");
        to.write_all(&block(way, number))
            .with_context(|| format!("block {number}"))?;
        number += 1;
        if let Some(rate) = load.rate {
            let due = Duration::from_secs(number) / rate;
            thread::sleep(due.saturating_sub(start.elapsed()));
        }
    }
    to.write_all(&vec![GOODBYE; BLOCK])
        .context("the last block")
}

fn receive(mut from: &TcpStream, way: u32, arrived: &AtomicU64) -> Result<Arrived> {
    let mut report = Arrived {
        blocks: 0,
        longest_gap: Duration::ZERO,
    };
    let (mut bytes, mut last) = (vec![0; BLOCK], Instant::now());
    loop {
        from.read_exact(&mut bytes)
            .with_context(|| format!("block {}", report.blocks))?;
        if bytes.iter().all(|byte| *byte == GOODBYE) {
            return Ok(report);
        }
        let sent = block(way, report.blocks);
        ensure!(
            bytes == sent,
            "block {}: {}",
            report.blocks,
            difference(&bytes, &sent)
        );
        report.blocks += 1;
        report.longest_gap = report.longest_gap.max(last.elapsed());
        last = Instant::now();
        arrived.fetch_add(1, Ordering::Relaxed);
    }
}

fn difference(came: &[u8], sent: &[u8]) -> String {
    let different: Vec<usize> = (0..BLOCK).filter(|at| came[*at] != sent[*at]).collect();
    format!(
        "{} bytes are not as they were sent, from byte {:?} on",
        different.len(),
        different.first()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_differ_everywhere() {
        let (first, second, back) = (block(0, 0), block(0, 1), block(1, 0));
        for at in (0..BLOCK).step_by(8) {
            let word = |block: &[u8]| block[at..at + 8].to_vec();
            assert!(
                word(&first) != word(&second) && word(&first) != word(&back),
                "at {at}"
            );
        }
    }
}
