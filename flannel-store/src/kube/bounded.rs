//! Answers of the server, no larger than they have any reason to be.
//!
//! The client library collects an answer, and a line of a watch, before anybody sees it. A server,
//! or a proxy in its place, that goes on sending would fill the memory.

use std::{
    error::Error,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tower::{BoxError, Layer, Service};

/// Bytes of an answer. A page of Nodes has about 1.6 MB.
pub(super) const MAX_ANSWER: usize = 64 << 20;
/// Bytes of a line of a watch. etcd takes objects of 1.5 MB.
pub(super) const MAX_LINE: usize = 4 << 20;

/// More than anybody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is larger than {} MiB", limit >> 20)]
pub struct TooLarge {
    /// Bytes.
    limit: usize,
}

impl TooLarge {
    /// The one that an error of the client library goes back to, if it does.
    pub(super) fn cause_of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(*found);
            }
            // The source of an I/O error is not the error it was made from, but that one's source.
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            next = inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
        }
        None
    }
}

/// Bounds what a service answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundAnswers;

impl<S> Layer<S> for BoundAnswers {
    type Service = BoundedService<S>;

    fn layer(&self, inner: S) -> BoundedService<S> {
        BoundedService { inner }
    }
}

/// A service with bounded answers.
pub(super) struct BoundedService<S> {
    inner: S,
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
        let is_watch = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
        let answer = self.inner.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| BoundedBody { body, is_watch, size: 0 })) })
    }
}

/// A body that ends with [`TooLarge`].
pub(super) struct BoundedBody<B> {
    body: B,
    /// Lines are bounded, and there may be any number.
    is_watch: bool,
    /// Bytes since the start, or the start of the line.
    size: usize,
}

impl<B> BoundedBody<B> {
    fn count(&mut self, data: &[u8]) -> Result<(), TooLarge> {
        let end_of_line = if self.is_watch { data.iter().rposition(|byte| *byte == b'\n') } else { None };
        self.size = end_of_line.map_or(self.size + data.len(), |end| data.len() - end - 1);
        let limit = if self.is_watch { MAX_LINE } else { MAX_ANSWER };
        if self.size > limit { Err(TooLarge { limit }) } else { Ok(()) }
    }
}

impl<B> Body for BoundedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(frame) => frame.map_err(Into::into),
            None => return Poll::Ready(None),
        };
        Poll::Ready(Some(frame.and_then(|frame| {
            self.count(frame.data_ref().map_or(&[], |data| data))?;
            Ok(frame)
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(is_watch: bool) -> BoundedBody<()> {
        BoundedBody { body: (), is_watch, size: 0 }
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
        assert_eq!((0..1000).take_while(|_| body.count(&piece).is_ok()).count(), 4);
    }

    #[test]
    fn the_cause_is_found_below_what_the_libraries_make_of_it() {
        let large = TooLarge { limit: MAX_LINE };
        let service = kube::Error::Service(large.into());
        let watch = kube::Error::ReadEvents(io::Error::other(large));
        assert_eq!([TooLarge::cause_of(&service), TooLarge::cause_of(&watch)], [Some(large); 2]);
        assert_eq!(TooLarge::cause_of(&kube::Error::ReadEvents(io::Error::other("else"))), None);
        assert_eq!(large.to_string(), "it is larger than 4 MiB");
    }
}
