//! Echo: which peers answer, and how fast.
//!
//! Each peer is sent an ICMP echo request at regular times, at its tunnel device's address, or at
//! its public address if the backend has no tunnel (`target`). Request and reply take the way of
//! pods' packets in both directions, in every mode. The peer's kernel answers, so stock nodes
//! answer too. The answers to these requests change only the status and the metrics: a silent peer
//! keeps its routes. Further requests over IPv6 show if packets without an outer UDP checksum reach
//! a peer (`unsummed`). If they do not, the kernel carries the packets to it. Datagrams to a closed
//! port show if packets whose inner checksums are left to the network card reach it (`offloaded`).
//! If they do not, the kernel computes them.
//!
//! A separate thread sends and receives, so that a busy main loop is not taken for a slow network.
//! It holds two raw sockets, opened while the process still had `CAP_NET_RAW`.

mod asked;
mod history;
mod message;
mod offloaded;
mod prober;
mod round;
mod setup;
mod shared;
mod silence;
mod socket;
mod target;
mod unsummed;

use std::{convert::Infallible, io, thread::JoinHandle};

use tokio::{runtime, sync::oneshot};

use self::prober::Prober;
pub use self::target::gateway;
pub use self::{
    setup::EchoSetup,
    shared::{EchoCounts, SharedEchoes},
    socket::EchoSockets,
};

/// The thread that asks. It ends when this is dropped.
#[derive(Debug)]
pub struct Echo {
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// Asks each of the peers from now on.
    pub fn start(sockets: EchoSockets, setup: EchoSetup) -> io::Result<Self> {
        let echoes = setup.echoes.clone();
        let started = Self::try_start(sockets, setup);
        started.inspect_err(|error| echoes.stop_asking(format!("cannot start: {error}")))
    }

    fn try_start(sockets: EchoSockets, setup: EchoSetup) -> io::Result<Self> {
        let echoes = setup.echoes.clone();
        echoes.ask_every(setup.interval, sockets.problem());
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let asking = move || {
            runtime.block_on(async {
                let asking = async { Ok(Prober::new(sockets, setup)?.run().await) };
                tokio::select! {
                    Err::<Infallible, io::Error>(error) = asking => {
                        tracing::warn!(%error, "no echo requests are sent to peers");
                        echoes.stop_asking(format!("cannot start: {error}"));
                    },
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name("echo".to_owned())
            .spawn(asking)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that asks peers for an echo panicked");
        }
    }
}
