//! The tunnel device that a backend wants, and our end of the tunnel.

use std::{any::Any, fmt, net::IpAddr};

use flannel_common::packet::addr::Mac;
use flannel_host::wireguard_key::PublicKey;
use flannel_netlink::Netlink;
use flannel_store::Vtep;
use futures::future::LocalBoxFuture;

use crate::{Device, DeviceError};

/// A tunnel device as a backend wants it, for one or both families.
pub trait TunnelDevice: Any + fmt::Debug + Send + Sync {
    /// Returns its name.
    fn name(&self) -> &str;

    /// Returns the UDP port at which it, or its process, receives.
    fn port(&self) -> Option<u16> {
        None
    }

    /// Returns its VNI, if it has one.
    fn vni(&self) -> Option<u32> {
        None
    }

    /// Returns true if a process has it open while all is well.
    fn is_of_process(&self) -> bool {
        false
    }

    /// Ensures that the device exists as it is wanted, and is up: creates, keeps, repairs or
    /// replaces it. At start (`adopt_mac`) an existing device keeps its Ethernet address.
    fn ensure<'a>(
        &'a self,
        netlink: &'a Netlink,
        adopt_mac: bool,
    ) -> LocalBoxFuture<'a, Result<Device, DeviceError>>;
}

/// Our end of the tunnel, as it is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnEnd {
    /// A device with an Ethernet address.
    Vtep(Vtep),
    /// The public key of a device.
    Key(PublicKey),
}

impl OwnEnd {
    /// Returns its Ethernet address; zero where it has none.
    pub fn mac(self) -> Mac {
        match self {
            Self::Vtep(vtep) => vtep.mac,
            Self::Key(_) => Mac::default(),
        }
    }

    /// Returns the same end of a node whose packets have another source than its public address, or
    /// not.
    #[must_use]
    pub fn from_other_source(self, other_source: bool) -> Self {
        match self {
            Self::Vtep(vtep) => Self::Vtep(Vtep {
                other_source,
                ..vtep
            }),
            Self::Key(_) => self,
        }
    }
}

impl From<Vtep> for OwnEnd {
    fn from(vtep: Vtep) -> Self {
        Self::Vtep(vtep)
    }
}

impl From<PublicKey> for OwnEnd {
    fn from(key: PublicKey) -> Self {
        Self::Key(key)
    }
}

/// The underlay of a tunnel device, and the device's own address.
#[derive(Clone, Copy, Debug)]
pub struct TunnelUnderlay {
    /// Interface index of the external interface.
    pub external: u32,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Source address of outer packets; its family is the tunnel's.
    pub source: IpAddr,
    /// The tunnel device's Ethernet address; zero where it has none.
    pub mac: Mac,
}
