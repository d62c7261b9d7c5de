//! Errors of tunnel devices.

use std::{error::Error, fmt};

use flannel_netlink::NetlinkError;
use nix::errno::Errno;

/// A device that is not as it should be, and cannot be made so.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A fault that only one kind of device has.
    #[error(transparent)]
    Fault(#[from] DeviceFault),
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

/// A fault that only one kind of device has, such as a process that does not start. It reads as the
/// backend's own error.
#[derive(Debug)]
pub struct DeviceFault {
    error: Box<dyn Error + Send + Sync>,
    is_temporary: bool,
}

impl DeviceFault {
    /// A fault of this kind; temporary if the same request may succeed later.
    pub fn new(error: impl Error + Send + Sync + 'static, is_temporary: bool) -> Self {
        Self {
            error: Box::new(error),
            is_temporary,
        }
    }
}

impl fmt::Display for DeviceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for DeviceFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl DeviceError {
    /// The kernel's error, where it is one.
    fn netlink(&self) -> Option<&NetlinkError> {
        match self {
            Self::Netlink(error) => Some(error),
            Self::Taken { source, .. } => source.netlink(),
            Self::MtuRefused { source, .. } => Some(source),
            Self::Fault(_) => None,
        }
    }

    /// Returns true if the same request may succeed later, without a change of the configuration.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Fault(fault) => fault.is_temporary,
            _ => self.netlink().is_some_and(NetlinkError::is_temporary),
        }
    }

    /// The kernel's refusal of an object that another program has, if that is the error.
    pub fn taken(&self) -> Option<&NetlinkError> {
        let source = self.netlink()?;
        matches!(source.errno(), Some(Errno::EEXIST | Errno::EADDRINUSE)).then_some(source)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_fault_of_one_kind_reads_as_its_own_error() {
        let error = || io::Error::other("the process does not start");
        for is_temporary in [false, true] {
            let device = DeviceError::from(DeviceFault::new(error(), is_temporary));
            assert_eq!(device.to_string(), error().to_string());
            assert_eq!(device.is_temporary(), is_temporary);
            assert!(device.taken().is_none());
        }
    }
}
