//! Both directions, a thread for each.

use std::{
    fs::File,
    io,
    net::UdpSocket,
    sync::Arc,
    thread::{self, JoinHandle},
};

use crate::{
    counts::Counters, error::TunnelError, inbound::Inbound, outbound::Outbound, readiness::Signal,
    table::SharedTable,
};

/// The parts that a datapath works on.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// The interface index of the TUN device.
    pub(crate) index: u32,
    /// The TUN device.
    pub(crate) device: Arc<File>,
    /// The UDP socket.
    pub(crate) socket: Arc<UdpSocket>,
    /// The peers.
    pub(crate) table: SharedTable,
    /// The counters.
    pub(crate) counters: Arc<Counters>,
    /// The UDP port of all nodes.
    pub(crate) port: u16,
}

/// A datapath that runs.
#[derive(Debug)]
pub(crate) struct Datapath {
    stop: Signal,
    /// Given when a thread ended by itself.
    failed: Signal,
    threads: [JoinHandle<Result<(), TunnelError>>; 2],
}

impl Datapath {
    /// Starts both threads.
    pub(crate) fn start(parts: &Parts) -> io::Result<Self> {
        let (stop, failed) = (Signal::new()?, Signal::new()?);
        let Parts {
            device,
            socket,
            table,
            counters,
            port,
            ..
        } = parts.clone();
        let outbound = Outbound::new(
            Arc::clone(&device),
            Arc::clone(&socket),
            table.reader(),
            Arc::clone(&counters),
            port,
        );
        let inbound = Inbound::new(device, socket, table.reader(), counters, port);
        let out = spawn("udp-out", "the TUN device", &stop, &failed, |stop| {
            outbound.run(stop)
        })?;
        let into = spawn("udp-in", "the UDP socket", &stop, &failed, |stop| {
            inbound.run(stop)
        });
        // The datapath needs both directions, so the first thread stops if the second cannot start.
        let into = into.inspect_err(|_| stop.give())?;
        Ok(Self {
            stop,
            failed,
            threads: [out, into],
        })
    }

    /// Given when a thread ended by itself.
    pub(crate) const fn failed(&self) -> &Signal {
        &self.failed
    }

    /// Stops both threads, with no packet between device and socket.
    pub(crate) fn stop(self) -> Result<(), TunnelError> {
        self.stop.give();
        let ended = self.threads.map(|thread| {
            let panicked = |_| {
                Err(TunnelError::Broken {
                    what: "a thread",
                    error: io::Error::other("it panicked"),
                })
            };
            thread.join().unwrap_or_else(panicked)
        });
        ended.into_iter().collect()
    }
}

fn spawn(
    name: &str,
    what: &'static str,
    stop: &Signal,
    failed: &Signal,
    work: impl FnOnce(&Signal) -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<Result<(), TunnelError>>> {
    let (stop, failed) = (stop.clone(), failed.clone());
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let result = work(&stop);
        if result.is_err() {
            failed.give();
        }
        result.map_err(|error| TunnelError::Broken { what, error })
    })
}
