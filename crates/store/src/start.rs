//! Start-up: waits for a store that may not be there yet.
//!
//! Every failure that time or an operator can heal is retried for ever; it is logged when it
//! changes, and otherwise once a minute.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::{AcquireError, Backoff, Hints, LeaseRequest, LogThrottle, OwnLease, SubnetManager};
use crate::config::{ConfigError, NetworkConfig};

const RETRY: Backoff = match Backoff::new(Duration::from_secs(1), Duration::from_secs(1), 10) {
    Some(backoff) => backoff,
    None => panic!("one second is a valid back-off"),
};

/// Between attempts that need the cluster to change.
const SLOW: Backoff = match Backoff::new(Duration::from_secs(1), Duration::from_secs(15), 10) {
    Some(backoff) => backoff,
    None => panic!("1 s to 15 s is a valid back-off"),
};

/// Waits for a network configuration that can be served. Malformed ones are waited out; only one
/// that asks for what is not built is returned as an error. `on_wait` learns the problem after each
/// attempt.
pub async fn wait_for_config<M: SubnetManager>(
    manager: &mut M,
    mut on_wait: impl FnMut(&str),
) -> Result<NetworkConfig, ConfigError> {
    let mut retry = Retry::new("the network configuration");
    loop {
        let problem = match manager.network_config().await {
            Ok(text) => match M::parse_config(&text) {
                Err(error) if !error.is_refusal() => error.to_string(),
                verdict => {
                    retry.finish();
                    return verdict;
                }
            },
            Err(error) => error.to_string(),
        };
        on_wait(&problem);
        retry.wait(&problem).await;
    }
}

/// Waits until the store says what it remembers of this node. `on_wait` learns the problem after
/// each attempt.
pub async fn wait_for_hints<M: SubnetManager>(
    manager: &mut M,
    mut on_wait: impl FnMut(&str),
) -> Hints {
    let mut retry = Retry::new("the store's word on this node");
    loop {
        match manager.hints().await {
            Ok(hints) => {
                retry.finish();
                return hints;
            }
            Err(error) => {
                let problem = error.to_string();
                on_wait(&problem);
                retry.wait(&problem).await;
            }
        }
    }
}

/// Waits until the store grants a lease. After each attempt that failed `go_on` learns the reason,
/// and returns false to end the wait, which then returns `None`.
pub async fn wait_for_lease<M: SubnetManager>(
    manager: &mut M,
    request: &LeaseRequest,
    mut go_on: impl AsyncFnMut(&mut M, &AcquireError<M::Error>) -> bool,
) -> Option<OwnLease> {
    let (mut retry, mut slow) = (Retry::new("a subnet lease"), SLOW.delays());
    loop {
        let error = match manager.acquire(request).await {
            Ok(own) => {
                retry.finish();
                return Some(own);
            }
            Err(error) => error,
        };
        if !go_on(manager, &error).await {
            return None;
        }
        let pause = match error {
            AcquireError::Store(_) | AcquireError::Conflict { .. } => {
                slow.reset();
                retry.delays.next_delay()
            }
            // Each attempt lists all leases, or writes one.
            AcquireError::OutOfSubnets(_)
            | AcquireError::OutsideNetwork(_)
            | AcquireError::AddressTaken(_) => slow.next_delay(),
        };
        retry.complain(&error.to_string());
        tokio::time::sleep(pause).await;
    }
}

struct Retry {
    what: &'static str,
    complaint: LogThrottle,
    delays: super::Delays,
}

impl Retry {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            complaint: LogThrottle::default(),
            delays: RETRY.delays(),
        }
    }

    async fn wait(&mut self, problem: &str) {
        self.complain(problem);
        tokio::time::sleep(self.delays.next_delay()).await;
    }

    fn complain(&mut self, problem: &str) {
        if self.complaint.is_due(problem, Instant::now()) {
            warn!("waiting for {}: {problem}", self.what);
        }
    }

    fn finish(&mut self) {
        if self.complaint.clear() {
            info!("got {}", self.what);
        }
    }
}
