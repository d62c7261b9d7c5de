//! One way to read and change a device, be it of the kernel or of a process.

use std::path::PathBuf;

use flannel_host::wireguard_key::{PublicKey, SecretKey};
use flannel_netlink::{Link, WireguardDevice, WireguardNetlink, WireguardPeer};

use super::{WireguardError, uapi};

/// A handle on the settings of one device.
#[derive(Clone, Debug)]
pub enum Control {
    /// The kernel's.
    Kernel {
        /// The kernel.
        netlink: WireguardNetlink,
        /// Its interface index.
        ifindex: u32,
    },
    /// A process's.
    Process {
        /// Its socket.
        socket: PathBuf,
    },
}

impl Control {
    /// The kernel's kind of link.
    pub const KIND: &str = "wireguard";

    /// Opens the handle on the device that is this link.
    pub async fn open(link: &Link) -> Result<Self, WireguardError> {
        if link.kind.as_deref() == Some(Self::KIND) {
            return Ok(Self::Kernel {
                netlink: WireguardNetlink::connect().await?,
                ifindex: link.index,
            });
        }
        let socket = uapi::socket(&link.name);
        uapi::ask(&socket, uapi::READ).await?;
        Ok(Self::Process { socket })
    }

    /// Its implementation, in one word.
    pub const fn implementation(&self) -> &'static str {
        match self {
            Self::Kernel { .. } => "kernel",
            Self::Process { .. } => "process",
        }
    }

    /// Reads everything.
    pub async fn read(&self) -> Result<WireguardDevice, WireguardError> {
        match self {
            Self::Kernel { netlink, ifindex } => Ok(netlink.device(*ifindex).await?),
            Self::Process { socket } => {
                let lines = uapi::ask(socket, uapi::READ).await?;
                uapi::device(&lines).map_err(|line| WireguardError::NotUnderstood {
                    socket: socket.clone(),
                    line,
                })
            }
        }
    }

    /// Sets key and port. Peers stay.
    pub async fn set_identity(&self, key: &SecretKey, port: u16) -> Result<(), WireguardError> {
        match self {
            Self::Kernel { netlink, ifindex } => {
                Ok(netlink.set_identity(*ifindex, *key, port).await?)
            }
            Self::Process { socket } => uapi::ask(socket, &uapi::identity(key, port))
                .await
                .map(drop),
        }
    }

    /// Creates a peer, or replaces the settings of an existing one.
    pub async fn replace_peer(
        &self,
        key: &PublicKey,
        peer: &WireguardPeer,
    ) -> Result<(), WireguardError> {
        match self {
            Self::Kernel { netlink, ifindex } => {
                Ok(netlink.replace_peer(*ifindex, *key, peer).await?)
            }
            Self::Process { socket } => uapi::ask(socket, &uapi::peer(key, peer)).await.map(drop),
        }
    }

    /// Removes a peer. A missing peer does not count as an error.
    pub async fn remove_peer(&self, key: &PublicKey) -> Result<(), WireguardError> {
        match self {
            Self::Kernel { netlink, ifindex } => Ok(netlink.remove_peer(*ifindex, *key).await?),
            Self::Process { socket } => uapi::ask(socket, &uapi::removal(key)).await.map(drop),
        }
    }
}
