//! Datagrams of very many flows, a few of each: what a flow table does when it is too small.

use std::{
    collections::BTreeSet,
    io::ErrorKind,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt};

use crate::{Host, harness::wait::patient, host::joined};

const TICK: Duration = Duration::from_millis(1);
/// Time without an arrival after which missing datagrams are lost.
const QUIET: Duration = Duration::from_millis(500);

/// Flows from every one of several sockets to every one of several others.
#[derive(Clone, Copy, Debug)]
pub struct ManyFlows {
    /// Sockets that send.
    pub from: u16,
    /// Sockets that receive.
    pub to: u16,
    /// Datagrams of each flow.
    pub rounds: u32,
    /// Datagrams a second, of all flows together.
    pub pps: u32,
}

impl ManyFlows {
    /// Sends them and says how many did not arrive.
    pub fn lost(self, from: &Host, to: &Host, at: IpAddr) -> Result<usize> {
        let receivers = to.enter(|| {
            (0..self.to)
                .map(|_| receiver(at))
                .collect::<Result<Vec<_>>>()
        })??;
        let targets: Vec<SocketAddr> = receivers
            .iter()
            .map(|receiver| Ok(receiver.local_addr()?))
            .collect::<Result<_>>()?;
        let done = Arc::<AtomicBool>::default();
        let receiver = thread::spawn({
            let done = Arc::clone(&done);
            move || receive(&receivers, &done)
        });
        let sent = from.enter(|| self.send(at, &targets));
        done.store(true, Ordering::Relaxed);
        let arrived = joined(receiver)?;
        Ok((0..sent??)
            .filter(|number| !arrived.contains(number))
            .count())
    }

    fn send(self, at: IpAddr, targets: &[SocketAddr]) -> Result<u32> {
        let any = if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let senders = (0..self.from)
            .map(|_| UdpSocket::bind(any))
            .collect::<Result<Vec<_>, _>>()?;
        let (start, mut number) = (Instant::now(), 0_u32);
        for _ in 0..self.rounds {
            for sender in &senders {
                for target in targets {
                    sender
                        .send_to(&number.to_be_bytes(), target)
                        .with_context(|| format!("to {target}"))?;
                    number += 1;
                    if number.is_multiple_of(self.pps / 1000) {
                        thread::sleep(
                            (TICK * number / (self.pps / 1000)).saturating_sub(start.elapsed()),
                        );
                    }
                }
            }
        }
        Ok(number)
    }
}

fn receiver(at: IpAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((at, 0)).with_context(|| format!("a socket at {at}"))?;
    setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).context("SO_RCVBUFFORCE")?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The numbers that came, until nothing does any more.
fn receive(sockets: &[UdpSocket], done: &AtomicBool) -> Result<BTreeSet<u32>> {
    let (mut numbers, mut last) = (BTreeSet::new(), Instant::now());
    while !done.load(Ordering::Relaxed) || last.elapsed() < patient(QUIET) {
        for socket in sockets {
            let mut number = [0; 4];
            match socket.recv(&mut number) {
                Ok(_) => {
                    numbers.insert(u32::from_be_bytes(number));
                    last = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("receiving"),
            }
        }
        thread::sleep(TICK / 10);
    }
    Ok(numbers)
}
