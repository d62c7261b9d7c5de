//! Metrics for Prometheus: `/metrics`, beside the health checks or on a listener of its own.
//!
//! They are put together when somebody asks, on a thread that nothing else waits for, out of what is there anyway: the status
//! document, the peers' book, counts of the agent's tasks, and the pinned maps. Nothing is written but the answer, and neither the
//! store nor the main loop is asked anything, so there is an answer as long as the process lives.
//!
//! One answer is made at a time and serves whoever asks within a second: who can reach the port can make the agent work once a
//! second and no more. What an answer costs does not depend on the number of peers or flows.

pub mod catalogue;
mod counts;
mod datapath;
mod flows;
mod node;
mod page;
#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::body::Bytes;
use prometheus::{core::Collector as _, process_collector::ProcessCollector};
use tokio::{sync::Mutex, task::spawn_blocking};

pub(in crate::observe) use self::page::MEDIA_TYPE;
pub use self::{counts::Counts, page::Metric};
use self::{flows::FlowCount, page::Page};
use crate::{datapath::PinRoot, observe::health::Readiness, reconcile::PeerBook};

/// An answer serves this long.
const FRESH: Duration = Duration::from_secs(1);

/// Where the numbers come from.
#[derive(Debug)]
struct Sources {
    readiness: Readiness,
    book: PeerBook,
    counts: Counts,
    pins: PinRoot,
    flows: FlowCount,
    process: ProcessCollector,
}

/// Answers. Clones give the same answers.
#[derive(Clone, Debug)]
pub struct Metrics {
    sources: Arc<Sources>,
    last: Arc<Mutex<Option<(Instant, Bytes)>>>,
}

impl Metrics {
    /// Out of these. Nothing is read yet.
    pub fn new(readiness: Readiness, book: PeerBook, counts: Counts, pins: PinRoot) -> Self {
        let (flows, process) = (FlowCount::default(), ProcessCollector::for_self());
        let sources = Sources { readiness, book, counts, pins, flows, process };
        Self { sources: Arc::new(sources), last: Arc::default() }
    }

    /// The answer: a new one, or one that is a second old at most. None if it could not be put together, which the log tells.
    pub(super) async fn answer(&self) -> Option<Bytes> {
        // The guard goes with the work: who asked may have gone before it is done, and the next one waits for it all the same.
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((at, text)) = &*last
            && at.elapsed() < FRESH
        {
            return Some(text.clone());
        }
        let sources = Arc::clone(&self.sources);
        let made = spawn_blocking(move || {
            *last = sources.text().map(|text| (Instant::now(), Bytes::from(text)));
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
    fn text(&self) -> Option<Vec<u8>> {
        let mut page = Page::default();
        node::write(&mut page, &self.readiness, &self.book, &self.counts);
        datapath::write(&mut page, &self.pins);
        if !self.is_in_mode_fast() {
            self.flows.forget();
        }
        self.flows.write(&mut page);
        self.process.collect().into_iter().for_each(|family| page.add(family));
        page.text().inspect_err(|error| tracing::error!(%error, "cannot put the metrics together")).ok()
    }

    fn is_in_mode_fast(&self) -> bool {
        self.readiness.status().mode.effective == "fast"
    }
}
