//! What flows meanwhile: a TCP connection with data both ways and a stream of datagrams, in every family the pods have.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Pair, eventually,
    load::{
        UdpLoad, UdpReport, UdpRun,
        bulk::{Bulk, BulkLoad},
    },
};

/// All that flows from the near pod to the far one.
pub(crate) struct Loads {
    connections: Vec<Bulk>,
    streams: Vec<UdpRun>,
}

impl Loads {
    pub(crate) fn start<N>(pair: &Pair<N>) -> Result<Self> {
        let load = UdpLoad { pps: 2_000, duration: Duration::from_mins(1), payload: 64 };
        let (mut connections, mut streams) = (Vec::new(), Vec::new());
        for at in pair.far.addresses() {
            connections.push(Bulk::start(&pair.near, &pair.far, (*at, 0).into(), None, BulkLoad::STEADY)?);
            streams.push(UdpRun::start(&pair.near, &pair.far, *at, load)?);
        }
        Ok(Self { connections, streams })
    }

    /// Waits until so many blocks more have arrived on every connection, each way.
    pub(crate) fn wait_arrived(&self, blocks: u64) -> Result<()> {
        for connection in &self.connections {
            let before = connection.arrived();
            eventually("data of a connection", Duration::from_secs(20), || {
                let arrived = connection.arrived();
                let enough = arrived.iter().zip(before).all(|(arrived, before)| arrived - before >= blocks);
                ensure!(enough, "{arrived:?} after {before:?}, of {blocks} blocks");
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Ends all of it. Every connection must be whole; what became of the datagrams.
    pub(crate) fn end(self) -> Result<Vec<UdpReport>> {
        for connection in self.connections {
            let arrived = connection.stop().context("a connection")?;
            println!("there {:?}, back {:?}", arrived[0], arrived[1]);
        }
        self.streams.into_iter().map(UdpRun::stop).collect()
    }

    /// Ends all of it, and every datagram must have arrived.
    pub(crate) fn expect_complete(self) -> Result<()> {
        for report in self.end()? {
            let UdpReport { sent, reordered, longest_gap, .. } = report;
            println!("{sent} datagrams, {reordered} reordered, longest gap {longest_gap:?}");
            report.expect_complete()?;
        }
        Ok(())
    }
}
