//! Answers of the server, no larger than they have any reason to be, and requests no sooner than it
//! asks for.
//!
//! The client library collects an answer, and a line of a watch, before its caller sees it. A
//! server, or a proxy in its place, that goes on sending would fill the memory. Of Nodes only what
//! the agent reads gets this far ([`Pruner`]).
//!
//! A server that is overloaded says when it wants to be asked again (`Retry-After`, [RFC 9110,
//! section 10.2.3](https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3)): the next request waits
//! for that.

use std::{
    error::Error,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use http::{Request, Response, header::RETRY_AFTER};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tower::{BoxError, Layer, Service};
use tracing::warn;

use crate::{LogThrottle, kube::prune::Pruner};

/// Bytes of an answer, of Nodes after pruning.
pub(in crate::kube) const MAX_ANSWER: usize = 64 << 20;
/// Bytes of a line of a watch. etcd takes objects of [1.5
/// MiB](https://etcd.io/docs/v3.5/dev-guide/limit/), and JSON has up to six bytes for one.
pub(in crate::kube) const MAX_LINE: usize = 16 << 20;
/// The path of lists and watches of Nodes.
const NODES: &str = "/api/v1/nodes";
/// The longest pause that a server can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The pauses that a server asks for. Clones are of the same server.
#[derive(Clone, Debug, Default)]
pub(in crate::kube) struct PacedServer(Arc<Mutex<Pace>>);

#[derive(Debug, Default)]
struct Pace {
    /// The earliest time of the next request.
    next: Option<Instant>,
    complaint: LogThrottle,
}

impl PacedServer {
    /// Returns the time that the server wants to be left alone.
    pub(in crate::kube) fn pause(&self) -> Duration {
        let next = self.lock().next;
        next.map_or(Duration::ZERO, |next| {
            next.saturating_duration_since(Instant::now())
        })
    }

    /// Takes note of an answer. Dates are not read: the server and this node may have other clocks.
    fn note<B>(&self, answer: &Response<B>) {
        if ![429, 503].contains(&answer.status().as_u16()) {
            return;
        }
        let seconds = answer
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok());
        if let Some(seconds) = seconds {
            self.lock().next =
                Some(Instant::now() + Duration::from_secs(seconds).min(LONGEST_PAUSE));
        }
    }

    /// Names a Node that is unusually large.
    fn note_large(&self, node: &str, bytes: usize) {
        if self
            .lock()
            .complaint
            .is_due(&format!("large node {node}"), Instant::now())
        {
            warn!(
                node,
                bytes,
                "the object of a node is unusually large; what flannel does not read of it is \
                 skipped"
            );
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// More than anybody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is larger than {} MiB", limit >> 20)]
pub struct TooLarge {
    /// Bytes.
    limit: usize,
}

impl TooLarge {
    /// The one that an error of the client library goes back to, if it does.
    pub(in crate::kube) fn cause_of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(*found);
            }
            // The source of an I/O error is not the error it was made from, but that one's source.
            let inner = error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref);
            next = inner
                .map(|inner| inner as &(dyn Error + 'static))
                .or_else(|| error.source());
        }
        None
    }
}

/// Bounds the answers of a service.
#[derive(Clone, Debug)]
pub(in crate::kube) struct Answers(pub(in crate::kube) PacedServer);

impl<S> Layer<S> for Answers {
    type Service = BoundedService<S>;

    fn layer(&self, inner: S) -> BoundedService<S> {
        BoundedService {
            inner,
            server: self.0.clone(),
        }
    }
}

/// A service with bounded answers.
pub(in crate::kube) struct BoundedService<S> {
    inner: S,
    server: PacedServer,
}

impl<S, A, B> Service<Request<A>> for BoundedService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<BoundedBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let is_watch = request
            .uri()
            .query()
            .is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
        let pruner = (request.uri().path() == NODES).then(Pruner::default);
        let (answer, server) = (self.inner.call(request), self.server.clone());
        Box::pin(async move {
            let answer = answer.await?;
            server.note(&answer);
            Ok(answer.map(|body| BoundedBody {
                body,
                is_watch,
                size: 0,
                pruner,
                server,
            }))
        })
    }
}

/// A body that ends with [`TooLarge`].
pub(in crate::kube) struct BoundedBody<B> {
    body: B,
    /// Lines are bounded, and there may be any number.
    is_watch: bool,
    /// Bytes since the start, or the start of the line.
    size: usize,
    pruner: Option<Pruner>,
    server: PacedServer,
}

impl<B> BoundedBody<B> {
    fn count(&mut self, data: &[u8]) -> Result<(), TooLarge> {
        let end_of_line = if self.is_watch {
            data.iter().rposition(|byte| *byte == b'\n')
        } else {
            None
        };
        self.size = end_of_line.map_or(self.size + data.len(), |end| data.len() - end - 1);
        let limit = if self.is_watch { MAX_LINE } else { MAX_ANSWER };
        if self.size > limit {
            Err(TooLarge { limit })
        } else {
            Ok(())
        }
    }

    /// Prunes the data of a frame, and counts what is left.
    fn take(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, TooLarge> {
        let frame = match (&mut self.pruner, frame.into_data()) {
            (Some(pruner), Ok(data)) => {
                let mut kept = Vec::new();
                pruner.prune(&data, &mut kept);
                if let Some((node, bytes)) = pruner.take_large() {
                    self.server.note_large(&node, bytes);
                }
                Frame::data(kept.into())
            }
            (None, Ok(data)) => Frame::data(data),
            (_, Err(frame)) => frame,
        };
        self.count(frame.data_ref().map_or(&[], |data| data))?;
        Ok(frame)
    }
}

impl<B> Body for BoundedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(frame) => frame.map_err(Into::into),
            None => return Poll::Ready(None),
        };
        Poll::Ready(Some(frame.and_then(|frame| Ok(self.take(frame)?))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.pruner.is_some() {
            SizeHint::default()
        } else {
            self.body.size_hint()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(is_watch: bool) -> BoundedBody<()> {
        BoundedBody {
            body: (),
            is_watch,
            size: 0,
            pruner: None,
            server: PacedServer::default(),
        }
    }

    #[test]
    fn an_answer_is_bounded_as_a_whole_and_a_watch_by_its_lines() {
        let line = [&vec![b'a'; 1 << 20][..], b"\n"].concat();
        for is_watch in [false, true] {
            let mut body = bounded(is_watch);
            let taken = (0..1000).take_while(|_| body.count(&line).is_ok()).count();
            assert_eq!(taken, if is_watch { 1000 } else { 63 });
        }
        let (mut body, piece) = (bounded(true), vec![b'a'; 1 << 20]);
        assert_eq!(
            (0..1000).take_while(|_| body.count(&piece).is_ok()).count(),
            16
        );
    }

    #[test]
    fn a_server_that_is_overloaded_is_left_alone_for_a_bounded_time() {
        let asked = |status: u16, value: &str| {
            let server = PacedServer::default();
            let answer = Response::builder()
                .status(status)
                .header(RETRY_AFTER, value)
                .body(())
                .expect("an answer");
            server.note(&answer);
            server.pause()
        };
        let [short, long] = [asked(429, "5"), asked(503, "86400")];
        assert!(
            short > Duration::from_secs(3) && short <= Duration::from_secs(5),
            "{short:?}"
        );
        assert!(
            long > Duration::from_secs(28) && long <= LONGEST_PAUSE,
            "{long:?}"
        );
        for (status, value) in [
            (200, "5"),
            (429, "Fri, 31 Dec 2099 23:59:59 GMT"),
            (429, "-1"),
            (404, "5"),
        ] {
            assert_eq!(asked(status, value), Duration::ZERO, "{status} {value}");
        }
    }

    #[test]
    fn the_cause_is_found_below_what_the_libraries_make_of_it() {
        let large = TooLarge { limit: MAX_LINE };
        let service = kube::Error::Service(large.into());
        let watch = kube::Error::ReadEvents(io::Error::other(large));
        assert_eq!(
            [TooLarge::cause_of(&service), TooLarge::cause_of(&watch)],
            [Some(large); 2]
        );
        assert_eq!(
            TooLarge::cause_of(&kube::Error::ReadEvents(io::Error::other("else"))),
            None
        );
        assert_eq!(large.to_string(), "it is larger than 16 MiB");
    }
}
