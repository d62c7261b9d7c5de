//! The settings with which the task of IPsec starts.

use std::path::PathBuf;

use flannel_store::config::IpsecConfig;
use ipnet::Ipv4Net;

use super::shared::SharedIpsecStatus;

/// The parts of the configuration, and where the state goes.
#[derive(Clone, Debug)]
pub struct IpsecSetup {
    /// The settings.
    pub config: IpsecConfig,
    /// The pod network.
    pub network: Ipv4Net,
    /// The program.
    pub program: PathBuf,
    /// The state, for the status and the metrics.
    pub shared: SharedIpsecStatus,
}
