//! Modes change under load, and agents come back.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Pair,
    cluster::topology::Stack,
    eventually,
    fast::fast_host_gw,
    load::{
        UdpLoad, UdpRun,
        bulk::{Bulk, BulkLoad},
    },
};

use super::{FOLLOWED, ask, on_external};

/// A connection with data both ways, and a stream of datagrams, in every family.
struct Loads {
    connections: Vec<Bulk>,
    streams: Vec<UdpRun>,
}

impl Loads {
    fn start(pair: &Pair) -> Result<Self> {
        let (mut connections, mut streams) = (Vec::new(), Vec::new());
        let load = UdpLoad {
            pps: 1_000,
            duration: Duration::from_mins(1),
            payload: 64,
        };
        for at in pair.far.addresses() {
            connections.push(Bulk::start(
                &pair.near,
                &pair.far,
                (*at, 0).into(),
                None,
                BulkLoad::steady(16),
            )?);
            streams.push(UdpRun::start(&pair.near, &pair.far, *at, load)?);
        }
        Ok(Self {
            connections,
            streams,
        })
    }

    /// Waits until ten blocks more have arrived on every connection, each way.
    fn wait_arrived(&self) -> Result<()> {
        for connection in &self.connections {
            let before = connection.arrived();
            eventually("data of a connection", Duration::from_secs(20), || {
                let arrived = connection.arrived();
                ensure!(
                    arrived
                        .iter()
                        .zip(before)
                        .all(|(now, before)| now - before >= 10),
                    "{arrived:?}, {before:?}"
                );
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Ends all of it: whole connections, and every datagram arrived.
    fn expect_complete(self) -> Result<()> {
        self.connections
            .into_iter()
            .try_for_each(|connection| connection.stop().map(drop))?;
        self.streams
            .into_iter()
            .try_for_each(|stream| stream.stop()?.expect_complete())
    }
}

#[test]
fn modes_and_agents_change_under_load_without_a_loss() -> Result<()> {
    let pair = fast_host_gw("gw-switch", Stack::Dual)?;
    let agents = [&pair.sender, &pair.receiver];
    let loads = Loads::start(&pair)?;
    // There is nothing to encapsulate: mode encap is mode kernel, and says so.
    for (other, reason) in [("kernel", None), ("encap", Some("encapsulate nothing"))] {
        pair.wait_replayed(1_000)?;
        agents
            .iter()
            .try_for_each(|agent| ask(agent, other, "kernel", reason))?;
        eventually(
            "nothing on the external interface",
            Duration::from_secs(5),
            || {
                let found = on_external(&pair.sender)?;
                ensure!(found.is_empty(), "{found:?}");
                Ok(())
            },
        )?;
        loads.wait_arrived()?;
        pair.set_mode("fast")?;
    }
    pair.wait_replayed(1_000)?;
    pair.sender.kill9()?;
    pair.wait_replayed(1_000)?;
    pair.sender.restart()?;
    pair.sender.wait_ready()?;
    pair.wait_replayed(1_000)?;
    assert_eq!(on_external(&pair.sender)?, FOLLOWED);
    loads.expect_complete()
}
