//! The two IP address families.

use std::{fmt, net::IpAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// One value of each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByFamily<T> {
    /// That of IPv4.
    pub v4: T,
    /// That of IPv6.
    pub v6: T,
}

impl<T> ByFamily<T> {
    /// The value of this family.
    pub const fn get(&self, family: Family) -> &T {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }
}

/// An IP address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in the order in which everything lists them.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

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
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}
