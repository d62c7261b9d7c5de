//! HTTP routes: health checks with flanneld's paths and texts, and [metrics](super::metrics).
//!
//! `/healthz` answers 200 while the main loop turns, and 503 when it has not for a minute, so that
//! a liveness probe restarts an agent that hangs. flanneld answers 200 always. `/readyz` answers
//! 200 while the node is ready and 503 otherwise, also after it was ready once; flanneld differs
//! there.
//! `/metrics` is what Prometheus scrapes. Any method is accepted. Other paths are 404, as are those
//! of another listener.
//!
//! A separate thread answers ([`http`](super::http)), so the answers do not depend on the agent's
//! tasks. A main loop that hangs is not ready: in addition to what the status states, its [`Pulse`]
//! must be younger than 30 seconds.

use std::time::Duration;

use flannel_status::{Severity, Status};
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{CONTENT_TYPE, HeaderValue},
};
use tokio::sync::watch;

use crate::{
    metrics::{MEDIA_TYPE, Metrics},
    pulse::Pulse,
    shared::SharedState,
};

/// A main loop that was not seen to go round for this long hangs. One round may reconcile thousands
/// of peers.
pub(super) const STALE: Duration = Duration::from_secs(30);

/// A main loop that was not seen to go round for this long does not come back by itself.
const DEAD: Duration = Duration::from_mins(1);

/// The media type of an answer in words.
const PLAIN: &str = "text/plain; charset=utf-8";

/// The readiness of the node at the time of a request.
#[derive(Clone, Debug)]
pub struct Readiness {
    status: watch::Receiver<Status>,
    shared: SharedState,
    pulse: Pulse,
}

impl Readiness {
    /// Takes the readiness from the status, for as long as the pulse is fresh.
    pub fn new(status: watch::Receiver<Status>, shared: SharedState, pulse: Pulse) -> Self {
        Self {
            status,
            shared,
            pulse,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.status.borrow().ready && self.pulse.age() < STALE
    }

    /// The answer of a node that is not ready, with the first problem that keeps it from being so.
    fn refusal(&self) -> String {
        const NOT_READY: &str = "flanneld is not ready yet";
        let status = self.with_problems();
        let problem = status
            .problems
            .iter()
            .find(|problem| problem.severity == Severity::Critical);
        problem.map_or_else(
            || NOT_READY.to_owned(),
            |problem| format!("{NOT_READY}: {}", problem.line()),
        )
    }

    /// The answer of a node that is ready, with its problems: some packets may be lost.
    fn consent(&self) -> String {
        const READY: &str = "flanneld is ready";
        let of_peers = self
            .shared
            .peer_problems()
            .into_iter()
            .filter(|(_, peers)| *peers > 0);
        let of_peers =
            of_peers.map(|(code, peers)| code.counted(u64::try_from(peers).unwrap_or(u64::MAX)));
        let problems: Vec<String> = self
            .with_problems()
            .problem_counts()
            .into_iter()
            .chain(of_peers)
            .collect();
        if problems.is_empty() {
            READY.to_owned()
        } else {
            format!("{READY}; problems: {}", problems.join(", "))
        }
    }

    /// The status with the problems that tasks know of, without those of peers.
    fn with_problems(&self) -> Status {
        self.shared.complete(&self.status.borrow())
    }

    fn is_alive(&self) -> bool {
        self.pulse.age() < DEAD
    }

    /// The status as last published. To be held for a moment only: the main loop waits with the
    /// next one.
    pub(super) fn status(&self) -> watch::Ref<'_, Status> {
        self.status.borrow()
    }

    /// Since the main loop was last seen to go round.
    pub(super) fn silence(&self) -> Duration {
        self.pulse.age()
    }
}

/// The routes of one listener.
#[derive(Clone, Debug)]
pub enum HealthRoutes {
    /// `/healthz` and `/readyz`.
    Health(Readiness),
    /// `/metrics`.
    Metrics(Metrics),
    /// All three.
    All(Readiness, Metrics),
}

impl HealthRoutes {
    /// Returns the purpose of the listener in words, for messages.
    pub(super) const fn purpose(&self) -> &'static str {
        match self {
            Self::Health(_) => "health checks",
            Self::Metrics(_) => "metrics",
            Self::All(..) => "health checks and metrics",
        }
    }

    /// Returns the prefix of the flags that choose its address.
    pub(super) const fn flags(&self) -> &'static str {
        match self {
            Self::Health(_) | Self::All(..) => "healthz",
            Self::Metrics(_) => "metrics",
        }
    }

    pub(super) async fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let (status, text) = match (path, self) {
            ("/metrics", Self::Metrics(metrics) | Self::All(_, metrics)) => {
                match metrics.answer().await {
                    Some(text) => return respond(StatusCode::OK, text, MEDIA_TYPE),
                    None => (
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "the metrics cannot be put together; the log says why",
                    ),
                }
            }
            ("/healthz", Self::Health(readiness) | Self::All(readiness, _))
                if readiness.is_alive() =>
            {
                (StatusCode::OK, "flanneld is running")
            }
            ("/healthz", Self::Health(_) | Self::All(..)) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "flanneld's main loop has not turned for a minute",
            ),
            ("/readyz", Self::Health(readiness) | Self::All(readiness, _))
                if readiness.is_ready() =>
            {
                return respond(StatusCode::OK, Bytes::from(readiness.consent()), PLAIN);
            }
            ("/readyz", Self::Health(readiness) | Self::All(readiness, _)) => {
                let text = readiness.refusal();
                return respond(StatusCode::SERVICE_UNAVAILABLE, Bytes::from(text), PLAIN);
            }
            _ => (StatusCode::NOT_FOUND, "404 page not found\n"),
        };
        respond(status, Bytes::from_static(text.as_bytes()), PLAIN)
    }
}

fn respond(status: StatusCode, text: Bytes, media_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
