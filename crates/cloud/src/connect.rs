//! The client of each cloud.

use std::net::IpAddr;

use super::{
    ali::{self, AliNode},
    aws::{self, AwsNode},
    client::CloudClient,
    error::CloudError,
    gce::{self, GceNode},
    record::{CloudKind, RecordedRoute},
    setup::CloudConfig,
    tencent::{self, TencentNode},
};

impl CloudConfig {
    /// The cloud.
    pub(super) const fn kind(&self) -> CloudKind {
        match self {
            Self::Aws(_) => CloudKind::Aws,
            Self::Gce => CloudKind::Gce,
            Self::Tencent(_) => CloudKind::Tencent,
            Self::Ali(_) => CloudKind::Ali,
        }
    }

    /// Finds this node in its cloud, by the address of its external interface.
    pub(super) async fn connect(
        &self,
        address: IpAddr,
    ) -> Result<Box<dyn CloudClient>, CloudError> {
        Ok(match self {
            Self::Aws(config) => Box::new(AwsNode::connect(address, config).await?),
            Self::Gce => Box::new(GceNode::connect(address).await?),
            Self::Ali(keys) => Box::new(AliNode::connect(address, keys.as_ref()).await?),
            Self::Tencent(keys) => Box::new(TencentNode::connect(address, keys.as_ref()).await?),
        })
    }
}

/// Removes a route on record, unless it leads elsewhere now.
pub(super) async fn undo(route: &RecordedRoute) -> Result<(), CloudError> {
    match route.cloud {
        CloudKind::Aws => aws::undo(route).await,
        CloudKind::Gce => gce::undo(route).await,
        CloudKind::Tencent => tencent::undo(route).await,
        CloudKind::Ali => ali::undo(route).await,
    }
}
