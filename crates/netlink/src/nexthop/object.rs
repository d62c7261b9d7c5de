//! A nexthop object and its number.

use std::{fmt, net::IpAddr};

/// The id of an object. The first to create an object with an id owns it; the kernel assigns small
/// ids to requests without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NexthopId(pub u32);

impl fmt::Display for NexthopId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nexthop {}", self.0)
    }
}

/// The next hop of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nexthop {
    /// Next hop; `None` where packets need none, or are not sent at all.
    pub gateway: Option<IpAddr>,
    /// Interface index; `None` for a group and a blackhole.
    pub oif: Option<u32>,
    /// The gateway counts as attached to the link although no prefix there covers it.
    pub onlink: bool,
    /// The [route protocol number](crate::protocol) of its creator.
    pub protocol: u8,
    /// It is more or something else: a group, a blackhole, one that encapsulates, one for the FDB.
    /// Read, never written.
    pub special: bool,
}
