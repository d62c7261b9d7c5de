//! What is answered by HTTP: health checks with flanneld's paths and texts, and [metrics](super::metrics).
//!
//! `/healthz` answers 200 for as long as the process does anything; `/readyz` answers 200 while the node is ready, and 503
//! otherwise, also after it was ready once: that is where flanneld differs. `/metrics` is what Prometheus scrapes. Any method; other paths
//! are 404, as are those of another listener.
//!
//! The answers come from a thread of their own ([`http`](super::http)), so that they come whatever the agent's tasks are doing. A main loop that
//! hangs is not ready: besides what the status says, its [`Pulse`] has to be younger than 30 seconds.

use std::time::Duration;

use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{CONTENT_TYPE, HeaderValue},
};
use tokio::sync::watch;

use crate::observe::{
    metrics::{MEDIA_TYPE, Metrics},
    pulse::Pulse,
    status::Status,
};

/// A main loop that was not seen to go round for this long hangs. One round may reconcile thousands of peers.
pub(super) const STALE: Duration = Duration::from_secs(30);

/// Whether the node is ready, as of now.
#[derive(Clone, Debug)]
pub struct Readiness {
    status: watch::Receiver<Status>,
    pulse: Pulse,
}

impl Readiness {
    /// What the status says, as long as the pulse beats.
    pub fn new(status: watch::Receiver<Status>, pulse: Pulse) -> Self {
        Self { status, pulse }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.status.borrow().ready && self.pulse.age() < STALE
    }

    /// The status as last published. To be held for a moment only: the main loop waits with the next one.
    pub(super) fn status(&self) -> watch::Ref<'_, Status> {
        self.status.borrow()
    }

    /// Since the main loop was last seen to go round.
    pub(super) fn silence(&self) -> Duration {
        self.pulse.age()
    }
}

/// What one listener answers.
#[derive(Clone, Debug)]
pub enum Routes {
    /// `/healthz` and `/readyz`.
    Health(Readiness),
    /// `/metrics`.
    Metrics(Metrics),
    /// All three.
    All(Readiness, Metrics),
}

impl Routes {
    /// What it is for, in words.
    pub(super) const fn purpose(&self) -> &'static str {
        match self {
            Self::Health(_) => "health checks",
            Self::Metrics(_) => "metrics",
            Self::All(..) => "health checks and metrics",
        }
    }

    /// How the flags begin that choose its address.
    pub(super) const fn flags(&self) -> &'static str {
        match self {
            Self::Health(_) | Self::All(..) => "healthz",
            Self::Metrics(_) => "metrics",
        }
    }

    pub(super) async fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let (status, text) = match (path, self) {
            ("/metrics", Self::Metrics(metrics) | Self::All(_, metrics)) => match metrics.answer().await {
                Some(text) => return respond(StatusCode::OK, text, MEDIA_TYPE),
                None => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be put together; the log says why"),
            },
            ("/healthz", Self::Health(_) | Self::All(..)) => (StatusCode::OK, "flanneld is running"),
            ("/readyz", Self::Health(readiness) | Self::All(readiness, _)) if readiness.is_ready() => {
                (StatusCode::OK, "flanneld is ready")
            }
            ("/readyz", Self::Health(_) | Self::All(..)) => {
                (StatusCode::SERVICE_UNAVAILABLE, "flanneld is not ready yet")
            }
            _ => (StatusCode::NOT_FOUND, "404 page not found\n"),
        };
        respond(status, Bytes::from_static(text.as_bytes()), "text/plain; charset=utf-8")
    }
}

fn respond(status: StatusCode, text: Bytes, media_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
