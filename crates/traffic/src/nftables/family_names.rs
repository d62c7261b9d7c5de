//! Names that depend on the family: of our table, and of nft's own kind of table.

use flannel_host::family::Family;

/// The name of our table of a family.
pub const fn table(family: Family) -> &'static str {
    match family {
        Family::V4 => "flannel-ipv4",
        Family::V6 => "flannel-ipv6",
    }
}

/// Returns nft's name of a family.
pub(super) const fn protocol(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}
