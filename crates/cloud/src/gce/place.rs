//! This node's place in Google's network, from the metadata of the instance.
//!
//! Every request has the header that the service asks for, which a page in a browser cannot send.

use std::net::IpAddr;

use http::Request;
use serde::Deserialize;

use super::words::WORDS;
use crate::{error::CloudError, http::Http, metadata::MetadataService, variable::variable};

/// The service's address, which needs no name resolution.
const METADATA: &str = "169.254.169.254";
/// The variable of Google's own programs for another address.
const METADATA_VARIABLE: &str = "GCE_METADATA_HOST";
/// The project of a network that several projects share; stock flannel reads it.
pub(super) const NETWORK_PROJECT: &str = "GCE_NETWORK_PROJECT_ID";

/// The metadata service.
#[derive(Clone, Debug)]
pub(super) struct GceMetadata(MetadataService);

/// This node's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GcePlace {
    /// The project of the network, which has its routes.
    pub(super) project: String,
    /// The name of the network.
    pub(super) network: String,
    /// The path of the instance in the API.
    pub(super) instance: String,
    /// The address of the instance in the network.
    pub(super) address: IpAddr,
    /// True if the network is another project's. Its routes cannot name the instance, so they lead
    /// to its address.
    pub(super) is_shared: bool,
}

/// An interface of the instance.
#[derive(Debug, Deserialize)]
struct GceInterface {
    /// Its address.
    ip: IpAddr,
    /// Its network, by the number of the project.
    network: String,
}

impl GcePlace {
    /// The receiver of the routes to this node.
    pub(super) fn target(&self) -> String {
        if self.is_shared {
            self.address.to_string()
        } else {
            self.instance.clone()
        }
    }

    /// The path of the network in the API.
    pub(super) fn network_path(&self) -> String {
        format!("projects/{}/global/networks/{}", self.project, self.network)
    }

    /// Finds the place of the instance that has an address.
    pub(super) async fn find(
        metadata: &GceMetadata,
        address: IpAddr,
        network_project: Option<String>,
    ) -> Result<Self, CloudError> {
        let interfaces = metadata
            .required("instance/network-interfaces/?recursive=true")
            .await?;
        let network = network_of(&interfaces, address)?;
        let own = metadata.required("project/project-id").await?;
        let zone = metadata.required("instance/zone").await?;
        let name = metadata.required("instance/name").await?;
        let instance = format!("projects/{own}/zones/{}/instances/{name}", last_part(&zone));
        let project = network_project.unwrap_or_else(|| own.clone());
        Ok(Self {
            is_shared: project != own,
            project,
            network,
            instance,
            address,
        })
    }
}

/// The name of the network of the interface with an address.
fn network_of(interfaces: &str, address: IpAddr) -> Result<String, CloudError> {
    let bad = |error: serde_json::Error| CloudError::BadAnswer {
        action: "network-interfaces",
        problem: error.to_string(),
    };
    let interfaces: Vec<GceInterface> = serde_json::from_str(interfaces).map_err(bad)?;
    let interface = interfaces.iter().find(|interface| interface.ip == address);
    Ok(last_part(&interface.ok_or(CloudError::NoInterface(address))?.network).to_owned())
}

/// The last part of a path.
fn last_part(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, last)| last)
}

impl GceMetadata {
    /// The service that the environment names, or that of every instance.
    pub(super) fn new(http: Http) -> Self {
        let host = variable(METADATA_VARIABLE).unwrap_or_else(|| METADATA.to_owned());
        Self(MetadataService::new(http, format!("http://{host}"), &WORDS))
    }

    /// An item that may not be there.
    pub(super) async fn item(&self, path: &str) -> Result<Option<String>, CloudError> {
        let path = format!("computeMetadata/v1/{path}");
        let request = Request::get(self.0.url(&path)).header("metadata-flavor", "Google");
        self.0.answer(&path, request).await
    }

    /// An item that every instance has.
    async fn required(&self, path: &str) -> Result<String, CloudError> {
        self.item(path).await?.ok_or_else(|| self.0.missing(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the service answers, cut to a few of its fields.
    const INTERFACES: &str = r#"[{"accessConfigs":[{"externalIp":"","type":"ONE_TO_ONE_NAT"}],"ip":"10.128.0.2",
        "mtu":1460,"network":"projects/123456/networks/default","subnetmask":"255.255.240.0"},
        {"ip":"10.1.0.2","network":"projects/123456/networks/pods"}]"#;

    #[test]
    fn the_network_is_that_of_the_interface_with_the_address() {
        let network = |address: &str| network_of(INTERFACES, address.parse().expect("an address"));
        assert_eq!(network("10.1.0.2").expect("a network"), "pods");
        assert_eq!(network("10.128.0.2").expect("a network"), "default");
        let error = network("10.2.0.2").expect_err("another").to_string();
        assert!(
            error.starts_with("no interface of this instance has the address 10.2.0.2"),
            "{error}"
        );
    }

    #[test]
    fn routes_of_a_shared_network_lead_to_the_address() {
        let [project, network] = ["host", "pods"].map(str::to_owned);
        let instance = "projects/own/zones/europe-west4-a/instances/n1".to_owned();
        let address = "10.1.0.2".parse().expect("an address");
        let mut place = GcePlace {
            project,
            network,
            instance,
            address,
            is_shared: true,
        };
        assert_eq!(
            (place.target().as_str(), place.network_path().as_str()),
            ("10.1.0.2", "projects/host/global/networks/pods")
        );
        place.is_shared = false;
        assert_eq!(place.target(), place.instance);
    }
}
