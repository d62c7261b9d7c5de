//! Follows the Pods of this node: their names, and the annotation that keeps a Pod out of mode
//! `fast`.
//!
//! This happens only while reports are requested: a list, then the watch from its version, as with
//! the Nodes. The addresses of each Pod are kept, and its choice. A server that refuses (an older
//! role without `pods: list, watch`) is asked again at growing intervals; without an answer all
//! pods take part. The last answer stays valid while the server is away.

pub(super) mod lister;
mod unclear;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use tracing::{debug, info, warn};

use self::unclear::UnclearValues;
use crate::{
    Backoff, Delays, PodOptOuts,
    kube::{
        connection::{client::KubeClient, requests},
        error::{KubeError, Problem},
        position::Position,
        record::{FAST_PATH, FastPathChoice, LocalPod, PodList},
        stream::{Change, WatchMessage, WatchStream},
    },
    opt_outs::OptOutPublisher,
    watcher::{Feed, FeedEvent, Reconnect},
};

const REFUSED: Backoff = match Backoff::new(Duration::from_secs(5), Duration::from_mins(5), 20) {
    Some(backoff) => backoff,
    None => panic!("5 s to 5 min is a valid back-off"),
};
const LISTING: &str = "listing the pods of this node";
const WATCHING: &str = "watching the pods of this node";

/// Follows them.
pub(super) struct PodWatcher {
    client: KubeClient,
    node: String,
    publisher: OptOutPublisher,
    /// Those with addresses, by name.
    pods: BTreeMap<String, FollowedPod>,
    unclear: UnclearValues,
    feed: Feed<WatchStream<LocalPod>>,
    /// `None` before the first listing, and when a new one is needed.
    position: Option<Position>,
    retry: Reconnect,
    refused: Delays,
    /// The problem last logged; `None` once the watch works again.
    problem: Option<String>,
}

/// A Pod with addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FollowedPod {
    addresses: Vec<IpAddr>,
    /// It stays out of mode `fast`.
    is_out: bool,
}

impl PodWatcher {
    pub(super) fn new(client: KubeClient, node: String, publisher: OptOutPublisher) -> Self {
        Self {
            client,
            node,
            publisher,
            pods: BTreeMap::new(),
            unclear: UnclearValues::default(),
            feed: Feed::reopen_now(),
            position: None,
            retry: Reconnect::new(),
            refused: REFUSED.delays(),
            problem: None,
        }
    }

    /// Runs until the asking side is gone.
    pub(super) async fn run(mut self) {
        let mut wanted = self.publisher.wanted.clone();
        while wanted.wait_for(|wanted| *wanted).await.is_ok() {
            tokio::select! {
                _ = wanted.wait_for(|wanted| !wanted) => self.rest(),
                () = self.follow() => {}
            }
        }
    }

    /// Discards what is known and closes the watch, while no caller wants reports.
    fn rest(&mut self) {
        self.pods.clear();
        (self.position, self.problem) = (None, None);
        self.feed = Feed::reopen_now();
        self.publisher.report.send_replace(PodOptOuts::default());
    }

    async fn follow(&mut self) {
        loop {
            let result = match self.feed.next_event().await {
                FeedEvent::Message(message) => self.take_message(message),
                FeedEvent::Reopen => self.reopen().await,
            };
            if let Err(error) = result {
                self.fail(&error);
            }
        }
    }

    async fn reopen(&mut self) -> Result<(), KubeError> {
        let position = match self.position.clone() {
            Some(position) => position,
            None => self.list().await?,
        };
        let stream = self
            .client
            .watch(
                WATCHING,
                requests::watch_pods(&self.node, position.version()),
            )
            .await?;
        self.feed = Feed::open(stream);
        self.refused.reset();
        if self.problem.take().is_some() {
            info!("pods of this node are followed again");
        }
        self.publish();
        Ok(())
    }

    async fn list(&mut self) -> Result<Position, KubeError> {
        let PodList { metadata, items } = self
            .client
            .call(LISTING, requests::list_pods(&self.node))
            .await?;
        self.pods.clear();
        self.unclear
            .retain_only(items.iter().map(|pod| pod.name.as_str()));
        for pod in items {
            self.see(pod);
        }
        self.publish();
        Ok(self
            .position
            .insert(Position::new(metadata.resource_version))
            .clone())
    }

    fn take_message(&mut self, message: WatchMessage<LocalPod>) -> Result<(), KubeError> {
        match message {
            WatchMessage::Change(change) => self.take_change(change),
            WatchMessage::Ended => {
                self.retry.note_end(self.feed.age());
                self.feed = Feed::Closed {
                    reopen_at: self.retry.after_failure(),
                };
                Ok(())
            }
            WatchMessage::Broken(problem) => {
                self.retry.note_end(self.feed.age());
                Err(self.client.failed(WATCHING, problem))
            }
        }
    }

    fn take_change(&mut self, change: Change<LocalPod>) -> Result<(), KubeError> {
        self.retry.note_change();
        if let Some(Err(problem)) = self
            .position
            .as_mut()
            .map(|position| position.advance(&change, |pod| &pod.resource_version))
        {
            return Err(self.client.failed(WATCHING, problem));
        }
        match change {
            Change::Put(pod) => self.see(pod),
            Change::Deleted(pod) => {
                self.pods.remove(&pod.name);
                self.unclear.forget(&pod.name);
            }
            Change::Bookmark { .. } => {}
        }
        self.publish();
        Ok(())
    }

    fn see(&mut self, pod: LocalPod) {
        let prefix = &self.client.options().prefix;
        let choice = if pod.addresses.is_empty() {
            FastPathChoice::In
        } else {
            pod.fast_path_choice(prefix)
        };
        let is_out = choice != FastPathChoice::In;
        if let Some(value) = self.unclear.note(&pod.name, choice) {
            let (name, annotation) = (&pod.name, prefix.name(FAST_PATH));
            warn!(
                "pod {name} has the annotation {annotation}: {value}, expected \"true\" or \
                 \"false\"; it stays out of mode fast"
            );
        }
        if pod.addresses.is_empty() {
            self.pods.remove(&pod.name);
        } else {
            self.pods.insert(
                pod.name,
                FollowedPod {
                    addresses: pod.addresses,
                    is_out,
                },
            );
        }
    }

    /// Reports what is known, if it differs from the last report.
    fn publish(&self) {
        let names = |wanted: fn(&FollowedPod) -> bool| {
            let pods = self.pods.iter().filter(move |(_, pod)| wanted(pod));
            pods.flat_map(|(name, pod)| {
                pod.addresses
                    .iter()
                    .map(move |address| (*address, name.clone()))
            })
            .collect()
        };
        let (out, names) = (names(|pod| pod.is_out), names(|_| true));
        let now = PodOptOuts {
            out,
            names,
            problem: self.problem.clone(),
            is_from_server: true,
        };
        self.publisher
            .report
            .send_if_modified(|last| std::mem::replace(last, now.clone()) != now);
    }

    /// The time of the next attempt after a failure. A dropped history is replaced without delay.
    fn next_attempt(&mut self, error: &KubeError) -> Instant {
        if error.is_refusal() {
            return Instant::now() + self.refused.next_delay();
        }
        let expired = error.is_expired() && self.position.is_some();
        let at_once = if expired {
            self.retry.after_expiry()
        } else {
            None
        };
        at_once.unwrap_or_else(|| self.retry.after_failure())
    }

    fn fail(&mut self, error: &KubeError) {
        self.feed = Feed::Closed {
            reopen_at: self.next_attempt(error),
        };
        if error.is_outdated() {
            self.position = None;
        }
        let refused = error.is_refusal();
        let quiet = matches!(
            error,
            KubeError::Unreachable {
                problem: Problem::Silent(_),
                ..
            }
        );
        if quiet || error.is_outdated() {
            debug!("{error}");
            return;
        }
        let problem = error.to_string();
        if self.problem.as_ref() != Some(&problem) {
            warn!(
                "{problem}; until that works, annotations of pods do not change who takes part in \
                 mode fast"
            );
        }
        self.problem = Some(problem);
        // A refusal is an answer and is reported. The problem with a server that cannot be reached
        // is reported only after an earlier listing; before the first one, an answer is still
        // awaited.
        if refused || self.position.is_some() {
            self.publish();
        }
    }
}
