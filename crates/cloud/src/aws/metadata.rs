//! The metadata of this instance, of [version
//! 2](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-metadata.html): every
//! request has a token of the service.

use std::net::IpAddr;

use http::Request;

use super::words::WORDS;
use crate::{error::CloudError, http::Http, metadata::MetadataService};

/// Seconds for which a token serves; one is asked for whenever items are.
const TOKEN_SECONDS: &str = "300";

/// The service.
#[derive(Clone, Debug)]
pub(super) struct Metadata(MetadataService);

/// A visit to it, with its token.
#[derive(Debug)]
pub(super) struct Visit<'a> {
    service: &'a MetadataService,
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
        Self(MetadataService::new(http, base.to_owned(), &WORDS))
    }

    /// Asks for a token.
    pub(super) async fn visit(&self) -> Result<Visit<'_>, CloudError> {
        let path = "latest/api/token";
        let request = Request::put(self.0.url(path))
            .header("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS);
        let token = self
            .0
            .answer(path, request)
            .await?
            .ok_or_else(|| self.0.missing(path))?;
        Ok(Visit {
            service: &self.0,
            token,
        })
    }
}

impl Visit<'_> {
    /// An item that may not be there.
    pub(super) async fn item(&self, path: &str) -> Result<Option<String>, CloudError> {
        let path = format!("latest/meta-data/{path}");
        let request = Request::get(self.service.url(&path));
        self.service
            .answer(
                &path,
                request.header("x-aws-ec2-metadata-token", &self.token),
            )
            .await
    }

    /// An item that every instance has.
    pub(super) async fn required(&self, path: &str) -> Result<String, CloudError> {
        let item = self.item(path).await?;
        item.ok_or_else(|| self.service.missing(&format!("latest/meta-data/{path}")))
    }

    /// The interface that has an address.
    pub(super) async fn interface_of(
        &self,
        address: IpAddr,
    ) -> Result<NetworkInterface, CloudError> {
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
