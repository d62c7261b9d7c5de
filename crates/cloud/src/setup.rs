//! The configuration of the task.

use std::{path::PathBuf, time::Duration};

use flannel_store::config::{AccessKeys, AwsVpcConfig};
use ipnet::Ipv4Net;

use super::shared::SharedCloudStatus;

/// The cloud whose tables get the routes, with the keys of its backend.
#[derive(Clone, Debug)]
pub enum CloudConfig {
    /// Amazon's VPC.
    Aws(AwsVpcConfig),
    /// Google's Compute Engine.
    Gce,
    /// Tencent's VPC, with the keys of the configuration.
    Tencent(Option<AccessKeys>),
    /// Alibaba's VPC, with the keys of the configuration.
    Ali(Option<AccessKeys>),
}

/// The parts of the configuration, and where the state goes.
#[derive(Clone, Debug)]
pub struct CloudSetup {
    /// The cloud.
    pub config: CloudConfig,
    /// The pod network.
    pub network: Ipv4Net,
    /// The time between two looks at the tables.
    pub interval: Duration,
    /// The state directory.
    pub state_dir: PathBuf,
    /// The state, for the status and the metrics.
    pub shared: SharedCloudStatus,
}
