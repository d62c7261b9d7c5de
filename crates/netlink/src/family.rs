//! Address families and addresses as the kernel's messages write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flannel_host::family::Family;
use netlink_packet_route::AddressFamily;

/// Returns the family a kernel message is about; `None` for the many that are not IP.
pub(crate) const fn from_kernel(family: AddressFamily) -> Option<Family> {
    match family {
        AddressFamily::Inet => Some(Family::V4),
        AddressFamily::Inet6 => Some(Family::V6),
        _ => None,
    }
}

/// Returns the family as the kernel's messages have it.
pub(crate) const fn to_kernel(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

/// An address from its bytes in network order; `None` unless there are four or sixteen.
pub(super) fn addr_from_bytes(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(bytes)
        .ok()
        .map(|v6| Ipv6Addr::from(v6).into())
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
