//! HTTP routes: health checks with flanneld's paths and texts, and [metrics](flannel_metrics).
//!
//! `/healthz` answers 200 while the main loop turns, and 503 when it has not for a minute, so that
//! a liveness probe restarts an agent that hangs. flanneld answers 200 always. `/readyz` answers
//! 200 while the node is ready and 503 otherwise, also after it was ready once; flanneld differs
//! there.
//! `/metrics` is what Prometheus scrapes. Any method is accepted. Other paths are 404, as are those
//! of another listener.
//!
//! A separate thread answers ([`http`](super::http)), so the answers do not depend on the agent's
//! tasks. A main loop that hangs is not ready: in addition to what the status states, its pulse
//! must be younger than 30 seconds.

use flannel_metrics::{MEDIA_TYPE, Metrics, readiness::Readiness};
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{CONTENT_TYPE, HeaderValue},
};

/// The media type of an answer in words.
const PLAIN: &str = "text/plain; charset=utf-8";

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
