//! The metadata of this instance.

use std::net::IpAddr;

use http::Request;

use super::WORDS;
use crate::cloud::{error::CloudError, http::Http, metadata::MetadataService, variable::variable};

/// The service of every instance.
const METADATA: &str = "http://metadata.tencentyun.com";
const METADATA_VARIABLE: &str = "FLANNEL_TENCENT_METADATA_URL";

/// The service.
#[derive(Clone, Debug)]
pub(super) struct TencentMetadata(MetadataService);

/// This node's place in a VPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TencentPlace {
    /// The VPC.
    pub(super) vpc: String,
    /// The subnet of the VPC.
    pub(super) subnet: String,
    /// The address of the interface, to which routes lead.
    pub(super) address: String,
}

impl TencentMetadata {
    /// The service that the environment names, or that of every instance.
    pub(super) fn new(http: Http) -> Self {
        let base = variable(METADATA_VARIABLE).unwrap_or_else(|| METADATA.to_owned());
        Self(MetadataService::new(http, base.trim_end_matches('/').to_owned(), &WORDS))
    }

    /// An item that may not be there.
    pub(super) async fn item(&self, path: &str) -> Result<Option<String>, CloudError> {
        let path = format!("latest/meta-data/{path}");
        self.0.answer(&path, Request::get(self.0.url(&path))).await
    }

    /// An item that every instance has.
    pub(super) async fn required(&self, path: &str) -> Result<String, CloudError> {
        self.item(path).await?.ok_or_else(|| self.0.missing(&format!("latest/meta-data/{path}")))
    }

    /// The place of the interface that has an address.
    pub(super) async fn place_of(&self, address: IpAddr) -> Result<TencentPlace, CloudError> {
        let all = "network/interfaces/macs/";
        for mac in self.required(all).await?.lines() {
            let path = |item: &str| format!("{all}{}/{item}", mac.trim_end_matches('/'));
            // A directory, with a line for each address.
            let addresses = self.item(&path("local-ipv4s/")).await?.unwrap_or_default();
            if addresses.lines().any(|line| line.trim_end_matches('/').parse() == Ok(address)) {
                let vpc = self.required(&path("vpc-id")).await?;
                let subnet = self.required(&path("subnet-id")).await?;
                return Ok(TencentPlace { vpc, subnet, address: address.to_string() });
            }
        }
        Err(CloudError::NoInterface(address))
    }
}
