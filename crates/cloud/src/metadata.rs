//! The metadata service of this instance: every cloud has one, on an address of the host itself.

use std::time::Duration;

use http::{StatusCode, request::Builder};

use super::{
    error::{CloudError, CloudWords, HttpError},
    http::Http,
};

/// The service is on the host itself.
const PATIENCE: Duration = Duration::from_secs(3);

/// The service.
#[derive(Clone, Debug)]
pub(super) struct MetadataService {
    http: Http,
    base: String,
    words: &'static CloudWords,
}

impl MetadataService {
    /// The service at an address, which has no path.
    pub(super) const fn new(http: Http, base: String, words: &'static CloudWords) -> Self {
        Self { http, base, words }
    }

    /// The address of an item.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    /// The error of an item that every instance has.
    pub(super) fn missing(&self, path: &str) -> CloudError {
        self.refused(path, StatusCode::NOT_FOUND)
    }

    fn refused(&self, path: &str, status: StatusCode) -> CloudError {
        CloudError::MetadataRefused {
            base: self.base.clone(),
            path: path.to_owned(),
            status: status.as_u16(),
        }
    }

    /// Sends a request for an item; `None` for one that is not there.
    pub(super) async fn answer(
        &self,
        path: &str,
        request: Builder,
    ) -> Result<Option<String>, CloudError> {
        let unanswered = |error: HttpError| CloudError::NoMetadata {
            words: self.words,
            base: self.base.clone(),
            error,
        };
        let request = request
            .body(String::new())
            .map_err(|error| unanswered(error.into()))?;
        let answer = self
            .http
            .send(request, PATIENCE)
            .await
            .map_err(unanswered)?;
        match answer.status {
            StatusCode::OK => Ok(Some(answer.body)),
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(self.refused(path, status)),
        }
    }
}
