//! Traffic during the tests, in every family the pods have: a TCP connection with data both ways,
//! another one through a Service, and a stream of datagrams. Packets that conntrack calls invalid
//! are dropped on the way.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Pair, eventually,
    load::{
        UdpLoad, UdpReport, UdpRun,
        bulk::{Bulk, BulkLoad},
        rr::Protocol,
    },
    service_rules::{Backend, Service, ServiceRules},
};

/// All that flows from the near pod to the far one.
pub(crate) struct Loads {
    connections: Vec<Bulk>,
    streams: Vec<UdpRun>,
}

/// The far pod's port behind the Service.
const BACKEND: u16 = 8080;

/// Makes a Service on the near node that leads to the far pod, and returns where.
fn serve<N>(pair: &Pair<N>, to: IpAddr) -> Result<SocketAddr> {
    let (at, pods) = if to.is_ipv4() {
        ("10.96.0.1:80", "10.244.0.0/16")
    } else {
        ("[fd00:10:96::1]:80", "fd00:10:244::/48")
    };
    let at = at.parse()?;
    let rules = ServiceRules::install(pair.sender.node(), Backend::Nftables, pods.parse()?)?;
    rules.set(&[Service::new(
        at,
        Protocol::Tcp,
        [SocketAddr::new(to, BACKEND)],
    )])?;
    Ok(at)
}

impl Loads {
    pub(crate) fn start<N>(pair: &Pair<N>) -> Result<Self> {
        Self::start_for(pair, Duration::from_mins(1))
    }

    /// The same, with datagrams for so long at most.
    pub(crate) fn start_for<N>(pair: &Pair<N>, duration: Duration) -> Result<Self> {
        let load = UdpLoad {
            pps: 1_000,
            duration,
            payload: 64,
        };
        let (mut connections, mut streams) = (Vec::new(), Vec::new());
        for at in pair.far.addresses() {
            let connect = |port, service| {
                let target = SocketAddr::new(*at, port);
                Bulk::start(&pair.near, &pair.far, target, service, BulkLoad::steady(16))
            };
            connections.push(connect(0, None)?);
            connections.push(connect(BACKEND, Some(serve(pair, *at)?))?);
            streams.push(UdpRun::start(&pair.near, &pair.far, *at, load)?);
        }
        Ok(Self {
            connections,
            streams,
        })
    }

    /// Waits until `blocks` more blocks have arrived on every connection, each way.
    pub(crate) fn wait_arrived(&self, blocks: u64) -> Result<()> {
        for connection in &self.connections {
            let before = connection.arrived();
            eventually("data of a connection", Duration::from_secs(20), || {
                let arrived = connection.arrived();
                let enough = arrived
                    .iter()
                    .zip(before)
                    .all(|(arrived, before)| arrived - before >= blocks);
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
            let UdpReport {
                sent,
                reordered,
                longest_gap,
                ..
            } = report;
            println!("{sent} datagrams, {reordered} reordered, longest gap {longest_gap:?}");
            report.expect_complete()?;
        }
        Ok(())
    }
}
