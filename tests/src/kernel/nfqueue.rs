//! A program that is asked about packets (NFQUEUE) and lets all of them pass, in the order they
//! came or in another one.

use std::{
    os::fd::{AsRawFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use anyhow::{Context as _, Result};
use nix::{
    errno::Errno,
    sched::{CpuSet, sched_setaffinity},
    sys::{
        socket::{MsgFlags, recv, setsockopt, sockopt},
        time::{TimeVal, TimeValLike as _},
    },
    unistd::Pid,
};

use crate::{
    Host,
    host::joined,
    kernel::nfnetlink::{self, attribute},
};

// linux/netfilter/nfnetlink.h and nfnetlink_queue.h.
const SUBSYS_QUEUE: u16 = 3 << 8;
const MSG_PACKET: u16 = 0;
const MSG_VERDICT: u16 = 1;
const MSG_CONFIG: u16 = 2;
const CFG_CMD: u16 = 1;
const CFG_PARAMS: u16 = 2;
const CMD_BIND: u8 = 1;
const COPY_META: u8 = 1;
const ATTR_PACKET_HDR: u16 = 1;
const ATTR_VERDICT_HDR: u16 = 2;
const ACCEPT: u32 = 1;

/// Answers for queue 0 of a host until it is dropped.
#[derive(Debug)]
pub struct Answers {
    answered: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Answers {
    /// Starts to answer, on one CPU.
    pub fn start(host: &Host, cpu: usize) -> Result<Self> {
        Self::start_reversing(host, cpu, 1)
    }

    /// Starts to answer, on one CPU, `batch` packets at a time, the last of them first.
    pub fn start_reversing(host: &Host, cpu: usize, batch: usize) -> Result<Self> {
        let queue = host.enter(open)??;
        let (answered, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let thread = host.thread({
            let (answered, stop) = (Arc::clone(&answered), Arc::clone(&stop));
            move || {
                let mut cpus = CpuSet::new();
                cpus.set(cpu)?;
                sched_setaffinity(Pid::from_raw(0), &cpus)?;
                answer(&queue, batch, &answered, &stop)
            }
        })?;
        Ok(Self {
            answered,
            stop,
            thread: Some(thread),
        })
    }

    /// Returns the number of packets answered so far.
    pub fn count(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Err(error)) = self.thread.take().map(joined) {
            eprintln!("the queue's program ended early: {error:#}");
        }
    }
}

fn open() -> Result<OwnedFd> {
    let queue = nfnetlink::open()?;
    setsockopt(&queue, sockopt::ReceiveTimeout, &TimeVal::milliseconds(20))?;
    send(
        &queue,
        MSG_CONFIG,
        &attribute(CFG_CMD, &[CMD_BIND, 0, 0, 2]),
    )?;
    let mut params = 0_u32.to_be_bytes().to_vec();
    params.push(COPY_META);
    send(&queue, MSG_CONFIG, &attribute(CFG_PARAMS, &params))?;
    Ok(queue)
}

fn answer(queue: &OwnedFd, batch: usize, answered: &AtomicU64, stop: &AtomicBool) -> Result<()> {
    let mut held = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let asked = next(queue)?;
        let is_quiet = asked.is_none();
        held.extend(asked);
        if is_quiet || held.len() >= batch {
            for id in held.drain(..).rev() {
                // First: who waits for the packet may look at the count next.
                answered.fetch_add(1, Ordering::Relaxed);
                send(
                    queue,
                    MSG_VERDICT,
                    &attribute(ATTR_VERDICT_HDR, &[ACCEPT.to_be_bytes(), id].concat()),
                )?;
            }
        }
    }
    Ok(())
}

/// The number of the next packet asked about; none for a moment, or where the kernel says something
/// else.
fn next(queue: &OwnedFd) -> Result<Option<[u8; 4]>> {
    let mut buffer = [0; 4096];
    let length = match recv(queue.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
        Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS) => return Ok(None),
        length => length.context("waiting for a packet")?,
    };
    let message = &buffer[..length];
    if message.get(4..6) != Some(&(SUBSYS_QUEUE | MSG_PACKET).to_ne_bytes()) {
        return Ok(None);
    }
    packet_id(message)
        .context("a packet without a number")
        .map(Some)
}

/// The number of the packet a message is about, as it stands there.
fn packet_id(message: &[u8]) -> Option<[u8; 4]> {
    let mut rest = message.get(20..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        if rest.get(2..4)? == ATTR_PACKET_HDR.to_ne_bytes() {
            return rest.get(4..)?.first_chunk().copied();
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

fn send(queue: &OwnedFd, kind: u16, attributes: &[u8]) -> Result<()> {
    nfnetlink::send(queue, SUBSYS_QUEUE | kind, 0, 0, attributes)
}
