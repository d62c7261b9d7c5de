//! The pods of any node, listed when they are asked for and never watched.
//!
//! The selector is the node's name and not an address: the API server has an index of pods by node,
//! and would search all pods for one with an address (`status.podIP`, which has only the first
//! address of a pod). One request answers for all pods of a node, of both families.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Deserialize;

use crate::kube::{
    connection::{
        client::{KubeClient, Liveness},
        requests,
    },
    error::KubeError,
    options::KubeOptions,
    record::LocalPod,
};

const LISTING: &str = "listing the pods of a node, for the names in flows";
/// The most addresses of pods that are taken from one node.
const ADDRESSES: usize = 4096;

/// Lists pods.
pub struct PodLister {
    client: KubeClient,
}

/// The rest of a list.
#[derive(Deserialize)]
struct Frame {}

impl PodLister {
    /// A lister that connects on its first request.
    pub fn new(options: KubeOptions) -> Self {
        Self {
            client: KubeClient::new(options, Liveness::default()),
        }
    }

    /// The pods of a node in the pod network, as `namespace/name`, by their addresses.
    ///
    /// # Errors
    /// The server refuses ([`KubeError::is_refusal`]) or cannot be reached.
    pub async fn pods_of(&mut self, node: &str) -> Result<BTreeMap<IpAddr, String>, KubeError> {
        let mut names = BTreeMap::new();
        let take = |pod: LocalPod| {
            for address in pod.addresses {
                if names.len() < ADDRESSES {
                    names.insert(address, pod.name.clone());
                }
            }
        };
        let _: Frame = self
            .client
            .list(LISTING, requests::list_pods(node), take)
            .await?;
        Ok(names)
    }
}
