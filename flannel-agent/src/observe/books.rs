//! The state that tasks of the agent keep up to date, for the status and the metrics.

use crate::{
    cloud::CloudBook, echo::EchoBook, extension::ExtensionBook, ipsec::IpsecBook, reconcile::PeerBook, udp::UdpBook,
    wireguard::WireguardBook,
};

/// The books. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// The peers and the ways to them.
    pub peers: PeerBook,
    /// Their answers to echo requests.
    pub echoes: EchoBook,
    /// The peers of WireGuard devices.
    pub wireguard: WireguardBook,
    /// The commands of the backend extension.
    pub extension: ExtensionBook,
    /// The routes in the cloud.
    pub cloud: CloudBook,
    /// The peers of the backend ipsec.
    pub ipsec: IpsecBook,
    /// The process of the backend udp.
    pub udp: UdpBook,
}
