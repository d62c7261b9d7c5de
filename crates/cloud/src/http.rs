//! One HTTP request at a time, with a bounded answer within a bounded time.

use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::time::timeout;

use super::error::{CloudError, HttpError};

/// Bytes of an answer. That of a table with a thousand routes has less than half of it.
const ANSWER: usize = 1 << 20;

/// A client. Clones share its connections.
#[derive(Clone, Debug)]
pub(super) struct Http(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HttpAnswer {
    pub(super) status: StatusCode,
    pub(super) body: String,
}

impl Http {
    /// Reads the roots of TLS from the host.
    pub(super) fn new() -> Result<Self, CloudError> {
        let connector = HttpsConnectorBuilder::new()
            .with_native_roots()
            .map_err(CloudError::Certificates)?;
        let connector = connector.https_or_http().enable_http1().build();
        Ok(Self(
            Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build(connector),
        ))
    }

    /// Sends a request, and reads the answer to its end.
    pub(super) async fn send(
        &self,
        request: Request<String>,
        patience: Duration,
    ) -> Result<HttpAnswer, HttpError> {
        let exchange = async {
            let answer = self
                .0
                .request(request.map(|body| Full::new(Bytes::from(body))))
                .await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER).collect().await;
            let body = body
                .map_err(|error| HttpError::Answer(error.to_string()))?
                .to_bytes();
            let body = String::from_utf8(body.into())
                .map_err(|error| HttpError::Answer(error.to_string()))?;
            Ok(HttpAnswer { status, body })
        };
        timeout(patience, exchange)
            .await
            .unwrap_or(Err(HttpError::Late(patience)))
    }
}
