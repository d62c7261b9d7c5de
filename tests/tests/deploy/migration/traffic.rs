//! Traffic during the phases: connections that have to survive, and streams of datagrams, counted
//! phase by phase.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    cluster::topology::ROUTER,
    eventually,
    load::{
        UdpLoad, UdpReport, UdpRun,
        bulk::{Bulk, BulkLoad},
    },
    no_agent::Talk,
};

use super::world::World;

/// Of connections with data both ways all the time: to `c`, and out of the cluster, masqueraded.
pub(crate) struct Connections {
    bulks: [Bulk; 2],
    /// To the pod that moves.
    talk: Talk,
}

impl Connections {
    pub(crate) fn open(world: &World) -> Result<Self> {
        let [near, moving, far] = &world.pods;
        let bulk = |to: &flannel_tests::Host, at: &str| -> Result<Bulk> {
            Bulk::start(
                near,
                to,
                SocketAddr::new(at.parse()?, 0),
                None,
                BulkLoad::steady(8),
            )
        };
        let bulks = [
            bulk(far, &far.ip().to_string())?,
            bulk(&world.net.r, ROUTER)?,
        ];
        Ok(Self {
            bulks,
            talk: Talk::open(near, moving, SocketAddr::new(moving.ip(), 0), None)?,
        })
    }

    /// Waits until all of them carried something new, and one that is new leaves the cluster with
    /// the node's address.
    pub(crate) fn go_on(&mut self, world: &World) -> Result<()> {
        for (bulk, whose) in self.bulks.iter().zip(["to c", "out of the cluster"]) {
            let before = bulk.arrived();
            eventually(
                &format!("data on the connection {whose}"),
                Duration::from_secs(20),
                || {
                    let now = bulk.arrived();
                    ensure!(
                        now.iter().zip(before).all(|(now, before)| *now > before),
                        "{now:?}"
                    );
                    Ok(())
                },
            )?;
        }
        eventually(
            "messages to the pod that moves",
            Duration::from_secs(20),
            || self.talk.exchange(20),
        )?;
        let new = Talk::open(
            &world.pods[0],
            &world.net.r,
            SocketAddr::new(ROUTER.parse()?, 0),
            None,
        )?;
        let seen = new.server.peer_addr()?.ip();
        ensure!(seen.to_string() == world.stock.public_ip, "seen as {seen}");
        Ok(())
    }

    /// Ends them: every byte has arrived.
    pub(crate) fn end(self) -> Result<()> {
        for bulk in self.bulks {
            let arrived = bulk.stop().context("a connection")?;
            println!("connection: there {:?}, back {:?}", arrived[0], arrived[1]);
        }
        Ok(())
    }
}

/// The datagrams sent and lost during one phase.
pub(crate) struct Phase {
    name: &'static str,
    /// To `c` and back, to the pod that moves and back.
    reports: Vec<(&'static str, UdpReport)>,
}

impl Phase {
    /// Streams between the pods while `work` is done.
    pub(crate) fn of<T>(
        world: &mut World,
        name: &'static str,
        work: impl FnOnce(&mut World) -> Result<T>,
    ) -> Result<(Self, T)> {
        let [near, moving, far] = &world.pods;
        let load = UdpLoad {
            pps: 1_000,
            duration: Duration::from_mins(1),
            payload: 64,
        };
        let mut runs = Vec::new();
        for (what, from, to) in [
            ("a to c", near, far),
            ("c to a", far, near),
            ("a to b", near, moving),
            ("b to a", moving, near),
        ] {
            runs.push((what, UdpRun::start(from, to, to.ip(), load)?));
        }
        let done = work(world).with_context(|| format!("phase {name}"));
        let mut reports = Vec::new();
        for (what, run) in runs {
            let report = run
                .stop()
                .with_context(|| format!("phase {name}, {what}"))?;
            println!(
                "{name}: {what}: {} of {} lost, longest gap {:?}",
                report.lost_count(),
                report.sent,
                report.longest_gap
            );
            reports.push((what, report));
        }
        Ok((Self { name, reports }, done?))
    }

    /// Fails if a packet was lost between any pods.
    pub(crate) fn lost_nothing(&self) -> Result<()> {
        self.complete(|_| true)
    }

    /// Fails if a packet was lost between pods that stay where they are.
    pub(crate) fn lost_nothing_but_to_the_mover(&self) -> Result<()> {
        self.complete(|what| what.contains('c'))
    }

    fn complete(&self, among: impl Fn(&str) -> bool) -> Result<()> {
        let concerned = self.reports.iter().filter(|(what, _)| among(what));
        for (what, report) in concerned {
            report
                .expect_complete()
                .with_context(|| format!("phase {}, {what}", self.name))?;
        }
        Ok(())
    }
}
