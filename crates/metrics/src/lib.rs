//! Metrics for Prometheus: `/metrics`, on the listener of the health checks or on a separate one.
//!
//! An answer is built on request, on a thread that no other task waits for, from existing data: the
//! status document, the list of peers, counts of the agent's tasks, and the pinned maps. It queries
//! neither the store nor the main loop, so there is an answer as long as the process lives.
//!
//! Answers are made one at a time, and each serves all requests within a second. A client that can
//! reach the port can therefore cause work at most once a second. The cost of an answer does not
//! depend on the number of flows. Each peer costs two reads of maps, as long as peers have series
//! ([`TrafficSeries`]).

mod backends;
pub mod catalogue;
mod counts;
mod datapath;
mod echo;
mod flows;
pub mod listener_state;
mod node;
mod page;
mod problems;
mod process;
pub mod pulse;
pub mod readiness;
pub mod shared;
#[cfg(test)]
mod tests;
mod traffic;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use flannel_datapath::PinRoot;
use flannel_flows::pod_traffic::{AllLinkCounters, link_counters};
use flannel_options::TrafficSeries;
use hyper::body::Bytes;
use prometheus::process_collector::ProcessCollector;
use tokio::{sync::Mutex, task::spawn_blocking};

pub use self::{
    counts::{Counts, FlowCounts},
    page::{MEDIA_TYPE, Metric},
};
use self::{flows::FlowCount, page::Page};
use crate::{readiness::Readiness, shared::SharedState};

/// An answer serves this long.
const FRESH: Duration = Duration::from_secs(1);

/// The sources of the numbers.
#[derive(Debug)]
struct Sources {
    readiness: Readiness,
    shared: SharedState,
    counts: Counts,
    pins: PinRoot,
    flows: FlowCount,
    process: ProcessCollector,
    series: TrafficSeries,
}

/// Answers. Clones give the same answers.
#[derive(Clone, Debug)]
pub struct Metrics {
    sources: Arc<Sources>,
    last: Arc<Mutex<Option<(Instant, Bytes)>>>,
}

impl Metrics {
    /// Creates the metrics from these sources, without reading them yet.
    pub fn new(
        readiness: Readiness,
        shared: SharedState,
        counts: Counts,
        pins: PinRoot,
        series: TrafficSeries,
    ) -> Self {
        let (flows, process) = (FlowCount::default(), ProcessCollector::for_self());
        let sources = Sources {
            readiness,
            shared,
            counts,
            pins,
            flows,
            process,
            series,
        };
        Self {
            sources: Arc::new(sources),
            last: Arc::default(),
        }
    }

    /// Returns the answer: a new one, or one that is at most a second old. `None` if it could not
    /// be put together; the log has the error.
    pub async fn answer(&self) -> Option<Bytes> {
        // The guard moves into the work: the request may be gone before the work is done, and the
        // next request waits for it all the same.
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((at, text)) = &*last
            && at.elapsed() < FRESH
        {
            return Some(text.clone());
        }
        let links = if self.sources.series.pods {
            link_counters().await
        } else {
            None
        };
        let sources = Arc::clone(&self.sources);
        let made = spawn_blocking(move || {
            *last = sources
                .text(links.as_ref())
                .map(|text| (Instant::now(), Bytes::from(text)));
            last.as_ref().map(|(_, text)| text.clone())
        });
        if self.sources.is_in_mode_fast() && self.sources.flows.is_due() {
            let sources = Arc::clone(&self.sources);
            spawn_blocking(move || sources.flows.count(&sources.pins));
        }
        made.await.ok().flatten()
    }
}

impl Sources {
    fn text(&self, links: Option<&AllLinkCounters>) -> Option<Vec<u8>> {
        let mut page = Page::default();
        node::write(&mut page, &self.readiness, &self.shared.peers, &self.counts);
        let status = self.shared.complete(&self.readiness.status());
        problems::write(&mut page, &status, self.shared.peer_problems());
        echo::write(&mut page, self.shared.echoes.counts(), &self.counts);
        backends::write(&mut page, &self.shared);
        datapath::write(&mut page, &self.pins);
        let peers = self.shared.peers.list(|way| way.peer.subnet);
        traffic::write(&mut page, &self.pins, &peers, self.series.peers, links);
        if !self.is_in_mode_fast() {
            self.flows.forget();
        }
        self.flows.write(&mut page);
        process::write(&mut page, &self.process);
        page.text()
            .inspect_err(|error| tracing::error!(%error, "cannot put the metrics together"))
            .ok()
    }

    fn is_in_mode_fast(&self) -> bool {
        self.readiness.status().mode.effective == "fast"
    }
}
