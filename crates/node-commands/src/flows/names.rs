//! Names of addresses, as the agent answers them, and kept for a while.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use flannel_names::{AddressNames, ResolvedNames};
use flannel_observe::socket::ask_names;
use tokio::task::JoinHandle;

/// A name is asked for again after this time.
const FRESH: Duration = Duration::from_secs(30);
/// The agent is asked again this long after it did not answer.
const PAUSE: Duration = Duration::from_secs(5);
/// Addresses that are remembered.
const REMEMBERED: usize = 16_384;

/// The names known so far, and the question that waits for its answer.
pub(super) struct AskedNames {
    state_dir: PathBuf,
    known: HashMap<IpAddr, (Instant, AddressNames)>,
    question: Option<JoinHandle<io::Result<ResolvedNames>>>,
    failed: Option<Instant>,
}

impl AskedNames {
    pub(super) fn new(state_dir: PathBuf) -> Self {
        Self {
            state_dir,
            known: HashMap::new(),
            question: None,
            failed: None,
        }
    }

    /// The names that are known, and true if no answer is awaited for these addresses. Asks for the
    /// others.
    pub(super) async fn known(&mut self, addresses: &[IpAddr]) -> (ResolvedNames, bool) {
        let now = Instant::now();
        self.take_answer(now).await;
        let is_fresh = |(at, _): &(Instant, AddressNames)| now.duration_since(*at) < FRESH;
        let missing: Vec<_> = addresses
            .iter()
            .copied()
            .filter(|address| !self.known.get(address).is_some_and(is_fresh))
            .collect();
        let may_ask = self
            .failed
            .is_none_or(|failed| now.duration_since(failed) >= PAUSE);
        if !missing.is_empty() && self.question.is_none() && may_ask {
            let (state_dir, addresses) = (self.state_dir.clone(), missing.clone());
            self.question = Some(tokio::spawn(async move {
                ask_names(&state_dir, &addresses).await
            }));
        }
        let known = |address: &IpAddr| Some((*address, self.known.get(address)?.1.clone()));
        (
            addresses.iter().filter_map(known).collect(),
            missing.is_empty() || self.question.is_none(),
        )
    }

    async fn take_answer(&mut self, now: Instant) {
        let Some(question) = self.question.take_if(|question| question.is_finished()) else {
            return;
        };
        match question.await {
            Ok(Ok(names)) => {
                if self.known.len() + names.len() > REMEMBERED {
                    self.known.clear();
                }
                self.failed = None;
                self.known.extend(
                    names
                        .into_iter()
                        .map(|(address, names)| (address, (now, names))),
                );
            }
            Ok(Err(_)) | Err(_) => self.failed = Some(now),
        }
    }
}
