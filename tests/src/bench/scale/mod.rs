//! The time a node takes to follow a cluster of thousands of peers, from start to the last route
//! and for one change, and its memory.
//!
//! In the same round, `ip -batch` and `bridge -batch` make the same kernel objects in a separate
//! namespace: the kernel's floor. Every figure that ends with a route ends when the kernel
//! announces it; the bench does not poll.

mod announce;
#[expect(dead_code, reason = "shared with tests, which need more of it")]
#[path = "../../../support/api_server/mod.rs"]
mod api_server;
mod change;
mod floor;
mod node;
#[path = "../../../support/nodes.rs"]
mod nodes;
mod peers;
mod report;
mod store;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use self::{
    floor::{Shape, floor},
    node::{Cluster, Start},
    report::{Size, median},
    store::Kind,
};

/// The number of plain routes from which on their floor is not measured: the kernel's time grows
/// with the square of their number.
const TOO_MANY_PLAIN: u32 = 20_000;

/// Options of the measurement.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The store
    #[arg(long, value_enum, default_value = "etcd")]
    store: Kind,
    /// Numbers of peers; without this 5000, and of etcd 65000 too
    #[arg(long, value_delimiter = ',')]
    peers: Vec<u32>,
    /// Rounds; up to 5,000 peers. A larger cluster gets two
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Changes of one peer per round; each is one that comes and one that goes
    #[arg(long, default_value_t = 20)]
    changes: u32,
    /// Write what was measured to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Options {
    pub(super) fn run(&self) -> Result<()> {
        ensure!(
            self.rounds > 0 && self.changes > 0,
            "--rounds and --changes must be at least 1"
        );
        let mut sizes = Vec::new();
        for &peers in self.sizes() {
            let size = self.measure(peers)?;
            print!("{}", report::table(&size));
            sizes.push(size);
        }
        if let Some(file) = &self.json {
            let text = serde_json::to_string_pretty(&sizes)? + "\n";
            fs::write(file, text).with_context(|| file.display().to_string())?;
        }
        Ok(())
    }

    fn sizes(&self) -> &[u32] {
        match self.store {
            _ if !self.peers.is_empty() => &self.peers,
            Kind::Etcd => &[5_000, 65_000],
            Kind::Kubernetes => &[5_000],
        }
    }

    fn measure(&self, peers: u32) -> Result<Size> {
        ensure!(
            (1..=peers::MOST).contains(&peers),
            "--peers: from 1 to {}",
            peers::MOST
        );
        let cluster = Cluster::new(self.store, peers)?;
        let rounds = if peers > 5_000 {
            self.rounds.min(2)
        } else {
            self.rounds
        };
        let (mut starts, mut plain, mut objects) = (Vec::new(), Vec::new(), Vec::new());
        for round in 1..=rounds {
            eprintln!("{peers} peers: round {round} of {rounds}");
            if peers <= TOO_MANY_PLAIN {
                plain.push(floor(cluster.lab(), peers, Shape::Plain)?);
            }
            starts.push(cluster.start(self.changes)?);
            objects.push(floor(cluster.lab(), peers, Shape::Objects)?);
        }
        let of = |value: fn(&Start) -> f64| median(starts.iter().map(value));
        Ok(Size {
            store: self.store,
            peers,
            rounds,
            to_last_route: of(|start| start.to_last_route),
            cpu_to_last_route: of(|start| start.cpu_to_last_route),
            sync_to_last_route: of(|start| start.sync_to_last_route),
            floor_plain: (!plain.is_empty()).then(|| median(plain.iter().copied())),
            floor_objects: median(objects.iter().copied()),
            with_objects: starts.iter().all(|start| start.nexthops >= peers.into()),
            join: of(|start| start.changes.join),
            leave: of(|start| start.changes.leave),
            events_per_join: of(|start| start.changes.events_per_join),
            events_per_leave: of(|start| start.changes.events_per_leave),
            peak_rss: of(|start| start.peak_rss),
            steady_rss: of(|start| start.steady_rss),
            own_rss: of(|start| start.own_rss),
            load: report::load_average()?,
        })
    }
}
