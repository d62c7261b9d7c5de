//! Errors of tunnel devices.

use flannel_backends::{udp::UdpError, wireguard::WireguardError};
use flannel_netlink::NetlinkError;
use nix::errno::Errno;

/// A device that is not as it should be, and cannot be made so.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// It is a WireGuard device.
    #[error(transparent)]
    Wireguard(#[from] WireguardError),
    /// It is that of the backend udp.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// The kernel has no ipip devices.
    #[error(
        "this kernel has no ipip devices: load the module ipip (modprobe ipip), or use the backend \
         vxlan"
    )]
    NoIpip(#[source] NetlinkError),
    /// The kernel refuses its MTU.
    #[error(
        "{device} cannot have an MTU of {mtu} bytes, with the tunnel's headers the external \
         interface carries less: \
         lower Backend.MTU in the network configuration, or raise the MTU of the interface"
    )]
    MtuRefused {
        /// The device.
        device: String,
        /// The MTU.
        mtu: u32,
        /// The kernel's error.
        source: NetlinkError,
    },
    /// Another device or program has what it needs.
    #[error(
        "{owner}, and {device} cannot have it too: remove that, or choose another in the network \
         configuration"
    )]
    Taken {
        /// The owner, in words.
        owner: String,
        /// The device.
        device: String,
        /// The error without the owner.
        source: Box<Self>,
    },
}

impl DeviceError {
    /// The kernel's error, where it is one.
    pub(super) fn netlink(&self) -> Option<&NetlinkError> {
        match self {
            Self::Netlink(error) | Self::Wireguard(WireguardError::Netlink(error)) => Some(error),
            Self::Taken { source, .. } => source.netlink(),
            Self::MtuRefused { source, .. } => Some(source),
            Self::Wireguard(_) | Self::Udp(_) | Self::NoIpip(_) => None,
        }
    }

    /// Returns true if the same request may succeed later, without a change of the configuration.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Udp(error) => error.is_temporary(),
            _ => self.netlink().is_some_and(NetlinkError::is_temporary),
        }
    }

    /// The kernel's refusal of an object that another program has, if that is the error.
    pub(super) fn taken(&self) -> Option<&NetlinkError> {
        let source = self.netlink()?;
        matches!(source.errno(), Some(Errno::EEXIST | Errno::EADDRINUSE)).then_some(source)
    }
}
