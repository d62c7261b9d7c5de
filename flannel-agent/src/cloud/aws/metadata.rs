//! The metadata of this instance, of version 2: every request has a token of the service.

use std::{net::IpAddr, time::Duration};

use http::{Method, Request, StatusCode};

use crate::cloud::{
    error::{CloudError, HttpError},
    http::Http,
};

/// The service is on the host itself.
const PATIENCE: Duration = Duration::from_secs(3);
/// Seconds for which a token serves; one is asked for whenever items are.
const TOKEN_SECONDS: &str = "300";

/// The service.
#[derive(Clone, Debug)]
pub(super) struct Metadata {
    http: Http,
    base: String,
}

/// A visit to it, with its token.
#[derive(Debug)]
pub(super) struct Visit<'a> {
    metadata: &'a Metadata,
    token: String,
}

/// The interface of the VPC that has an address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NetworkInterface {
    /// Its identifier.
    pub(super) id: String,
    /// That of its subnet of the VPC.
    pub(super) subnet: String,
    /// That of the VPC.
    pub(super) vpc: String,
}

impl Metadata {
    pub(super) fn new(http: Http, base: &str) -> Self {
        Self { http, base: base.to_owned() }
    }

    /// Asks for a token.
    pub(super) async fn visit(&self) -> Result<Visit<'_>, CloudError> {
        let path = "latest/api/token";
        let request = Request::put(self.url(path)).header("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS);
        let token = self.answer(path, request).await?;
        let token = token.ok_or_else(|| self.refused(path, StatusCode::NOT_FOUND))?;
        Ok(Visit { metadata: self, token })
    }

    fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    fn refused(&self, path: &str, status: StatusCode) -> CloudError {
        CloudError::MetadataRefused { base: self.base.clone(), path: path.to_owned(), status: status.as_u16() }
    }

    /// `None` for an item that is not there.
    async fn answer(&self, path: &str, request: http::request::Builder) -> Result<Option<String>, CloudError> {
        let unanswered = |error: HttpError| CloudError::NoMetadata { base: self.base.clone(), error };
        let request = request.body(String::new()).map_err(|error| unanswered(error.into()))?;
        let answer = self.http.send(request, PATIENCE).await.map_err(unanswered)?;
        match answer.status {
            StatusCode::OK => Ok(Some(answer.body)),
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(self.refused(path, status)),
        }
    }
}

impl Visit<'_> {
    /// An item that may not be there.
    pub(super) async fn item(&self, path: &str) -> Result<Option<String>, CloudError> {
        let path = format!("latest/meta-data/{path}");
        let request = Request::builder().method(Method::GET).uri(self.metadata.url(&path));
        self.metadata.answer(&path, request.header("x-aws-ec2-metadata-token", &self.token)).await
    }

    /// An item that every instance has.
    pub(super) async fn required(&self, path: &str) -> Result<String, CloudError> {
        let item = self.item(path).await?;
        item.ok_or_else(|| self.metadata.refused(&format!("latest/meta-data/{path}"), StatusCode::NOT_FOUND))
    }

    /// The interface that has an address.
    pub(super) async fn interface_of(&self, address: IpAddr) -> Result<NetworkInterface, CloudError> {
        let all = "network/interfaces/macs/";
        for mac in self.required(all).await?.lines() {
            let path = |item: &str| format!("{all}{}/{item}", mac.trim_end_matches('/'));
            let addresses = self.item(&path("local-ipv4s")).await?.unwrap_or_default();
            if addresses.lines().any(|line| line.parse() == Ok(address)) {
                let id = self.required(&path("interface-id")).await?;
                let subnet = self.required(&path("subnet-id")).await?;
                let vpc = self.required(&path("vpc-id")).await?;
                return Ok(NetworkInterface { id, subnet, vpc });
            }
        }
        Err(CloudError::NoInterface(address))
    }
}
