//! Addresses as they stand in map values and packets: byte arrays in network order.
//!
//! No type here has padding or depends on the byte order of the machine, so a value can cross
//! between the agent and the programs as it is. [`Addr`] holds either family in sixteen bytes; an
//! IPv4 address is stored in its IPv4-mapped form (`::ffff:a.b.c.d`), which keeps the two families
//! apart without a tag.

use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// An Ethernet address. Written as lower-case hex with colons, which is how flannel publishes a
/// `VtepMAC`.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Turns six random bytes into a locally administered unicast address.
    pub const fn local_unicast(mut bytes: [u8; 6]) -> Self {
        bytes[0] = (bytes[0] & 0xfe) | 0x02;
        Self(bytes)
    }

    /// Returns true for an address that one interface can have: not zero, not a group address.
    pub const fn is_unicast(self) -> bool {
        let m = self.0;
        m[0] & 1 == 0 && (m[0] | m[1] | m[2] | m[3] | m[4] | m[5]) != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = self.0;
        write!(
            f,
            "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}",
            m[0], m[1], m[2], m[3], m[4], m[5]
        )
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text was not six two-digit hex numbers between colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMac;

impl fmt::Display for BadMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a MAC address of the form 02:00:5e:10:00:01")
    }
}

impl core::error::Error for BadMac {}

impl FromStr for Mac {
    type Err = BadMac;

    fn from_str(text: &str) -> Result<Self, BadMac> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(BadMac)?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(BadMac);
            }
            *byte = u8::from_str_radix(part, 16).or(Err(BadMac))?;
        }
        if parts.next().is_some() {
            Err(BadMac)
        } else {
            Ok(Self(bytes))
        }
    }
}

/// An IPv4 or IPv6 address in sixteen bytes, network order; IPv4 in its IPv4-mapped form.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr(pub [u8; 16]);

impl Addr {
    /// No address: all bytes zero, the IPv6 unspecified address.
    pub const NONE: Self = Self([0; 16]);

    /// The IPv4-mapped form of four bytes as they stand in an IPv4 header.
    #[inline(always)]
    pub const fn from_v4_bytes(v4: [u8; 4]) -> Self {
        let [a, b, c, d] = v4;
        Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    /// The four bytes of an IPv4 header. Meaningful only for an address made from IPv4.
    #[inline(always)]
    pub const fn v4_bytes(&self) -> [u8; 4] {
        let b = &self.0;
        [b[12], b[13], b[14], b[15]]
    }
}

/// Equality of two addresses. As integers: a comparison of byte arrays becomes a call the BPF
/// target lacks.
#[inline(always)]
pub const fn same_addr(a: Addr, b: Addr) -> bool {
    let ([a_high, a_low], [b_high, b_low]) = (halves(a.0), halves(b.0));
    a_high == b_high && a_low == b_low
}

/// The two halves of sixteen bytes, most significant first.
#[inline(always)]
pub(crate) const fn halves(b: [u8; 16]) -> [u64; 2] {
    [
        u64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
        u64::from_be_bytes([b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]),
    ]
}

impl From<Ipv4Addr> for Addr {
    fn from(addr: Ipv4Addr) -> Self {
        Self::from_v4_bytes(addr.octets())
    }
}

impl From<Ipv6Addr> for Addr {
    fn from(addr: Ipv6Addr) -> Self {
        Self(addr.octets())
    }
}

impl From<IpAddr> for Addr {
    fn from(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl From<Addr> for IpAddr {
    fn from(addr: Addr) -> Self {
        Ipv6Addr::from(addr.0).to_canonical()
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            f.write_str("-")
        } else {
            IpAddr::from(*self).fmt(f)
        }
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macs_are_read_and_written_as_flannel_publishes_them() {
        let text = "c6:d2:32:6f:8f:44";
        let mac: Mac = text.parse().expect("a MAC");
        assert_eq!(mac, Mac([0xc6, 0xd2, 0x32, 0x6f, 0x8f, 0x44]));
        assert_eq!(std::format!("{mac}"), text);
        assert_eq!("C6:D2:32:6F:8F:44".parse(), Ok(mac));
        for bad in [
            "",
            "c6:d2:32:6f:8f",
            "c6:d2:32:6f:8f:44:00",
            "c6-d2-32-6f-8f-44",
            "6:d2:32:6f:8f:44",
            "+6:d2:32:6f:8f:44",
        ] {
            assert_eq!(bad.parse::<Mac>(), Err(BadMac), "{bad}");
        }
    }

    #[test]
    fn a_random_mac_is_made_local_and_unicast() {
        let mac = Mac::local_unicast([0xff; 6]);
        assert_eq!(mac.0[0], 0xfe);
        assert!(mac.is_unicast());
        assert!(!Mac([0; 6]).is_unicast());
        assert!(!Mac([1, 0, 0, 0, 0, 0]).is_unicast());
    }

    #[test]
    fn every_byte_of_an_address_counts() {
        let addr = Addr([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        assert!(same_addr(addr, addr));
        for at in 0..16 {
            let mut other = addr;
            other.0[at] ^= 0x80;
            assert!(!same_addr(addr, other), "byte {at}");
        }
    }

    #[test]
    fn both_families_survive_the_round_trip() {
        for text in ["10.0.0.1", "fd00::1", "255.255.255.255"] {
            let ip: IpAddr = text.parse().expect("an address");
            assert_eq!(IpAddr::from(Addr::from(ip)), ip);
            assert_eq!(std::format!("{}", Addr::from(ip)), text);
        }
        assert_eq!(
            Addr::from(Ipv4Addr::new(10, 1, 2, 3)).v4_bytes(),
            [10, 1, 2, 3]
        );
        assert_eq!(std::format!("{}", Addr::NONE), "-");
    }
}
