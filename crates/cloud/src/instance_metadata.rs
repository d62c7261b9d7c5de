//! The metadata of an instance below `latest/meta-data`, with a token where the cloud has one.

use http::Request;

use super::{
    error::{CloudError, CloudWords},
    http::Http,
    metadata::MetadataService,
};

/// Seconds for which a token serves; one is asked for with each item.
const TOKEN_SECONDS: &str = "60";

/// The metadata.
#[derive(Clone, Debug)]
pub(super) struct InstanceMetadata {
    service: MetadataService,
    token: Option<&'static TokenHeaders>,
}

/// The headers of a service whose items need a token.
#[derive(Debug)]
pub(super) struct TokenHeaders {
    /// The header with the lifetime, of the request for a token.
    pub(super) lifetime: &'static str,
    /// The header with the token.
    pub(super) token: &'static str,
}

impl InstanceMetadata {
    /// The service at an address.
    pub(super) fn new(
        http: Http,
        base: &str,
        words: &'static CloudWords,
        token: Option<&'static TokenHeaders>,
    ) -> Self {
        Self {
            service: MetadataService::new(http, base.trim_end_matches('/').to_owned(), words),
            token,
        }
    }

    /// An item that may not be there.
    pub(super) async fn item(&self, path: &str) -> Result<Option<String>, CloudError> {
        let path = format!("latest/meta-data/{path}");
        let mut request = Request::get(self.service.url(&path));
        if let Some(headers) = self.token {
            request = request.header(headers.token, self.token(headers).await?);
        }
        self.service.answer(&path, request).await
    }

    async fn token(&self, headers: &TokenHeaders) -> Result<String, CloudError> {
        let path = "latest/api/token";
        let request = Request::put(self.service.url(path)).header(headers.lifetime, TOKEN_SECONDS);
        self.service
            .answer(path, request)
            .await?
            .ok_or_else(|| self.service.missing(path))
    }

    /// An item that every instance has.
    pub(super) async fn required(&self, path: &str) -> Result<String, CloudError> {
        self.item(path)
            .await?
            .ok_or_else(|| self.service.missing(&format!("latest/meta-data/{path}")))
    }

    /// The paths of the interfaces of the instance.
    pub(super) async fn interfaces(&self) -> Result<Vec<String>, CloudError> {
        let all = "network/interfaces/macs/";
        let path = |mac: &str| format!("{all}{}", mac.trim_end_matches('/'));
        Ok(self.required(all).await?.lines().map(path).collect())
    }
}
