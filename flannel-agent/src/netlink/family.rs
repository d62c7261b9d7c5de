//! The two address families everything here is told apart by.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink_packet_route::AddressFamily;

/// An IP address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of one address.
    pub const fn of(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The prefix every address of this family is in.
    pub fn everything(self) -> IpNet {
        match self {
            Self::V4 => Ipv4Net::default().into(),
            Self::V6 => Ipv6Net::default().into(),
        }
    }

    /// Bits in an address.
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The family a kernel message is about; `None` for the many that are not IP.
    pub(super) fn from_kernel(family: AddressFamily) -> Option<Self> {
        match family {
            AddressFamily::Inet => Some(Self::V4),
            AddressFamily::Inet6 => Some(Self::V6),
            _ => None,
        }
    }
}

impl From<Family> for AddressFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::Inet,
            Family::V6 => Self::Inet6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// An address from its bytes in network order; `None` unless there are four or sixteen.
pub(super) fn addr_from_bytes(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| Ipv6Addr::from(v6).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_from_four_or_sixteen_bytes_only() {
        assert_eq!(addr_from_bytes(&[10, 0, 0, 1]), "10.0.0.1".parse().ok());
        assert_eq!(addr_from_bytes(&[0; 16]), "::".parse().ok());
        for bad in [0, 3, 5, 15, 17] {
            assert_eq!(addr_from_bytes(&vec![0; bad]), None, "{bad} bytes");
        }
    }
}
