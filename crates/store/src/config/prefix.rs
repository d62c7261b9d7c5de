//! One view of IPv4 and IPv6 networks, so that validation and allocation are written once.
//!
//! Addresses become numbers (`u128`, host order, IPv4 in the low 32 bits); arithmetic happens there
//! and only there.

use std::{
    fmt::{Debug, Display},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// An IP network of one family.
pub trait Prefix:
    Copy + Debug + Display + Eq + Ord + FromStr + Into<IpNet> + Send + Sync + 'static
{
    /// The family's address.
    type Address: Copy + Debug + Display + Eq + FromStr + Into<IpAddr> + Send + Sync + 'static;

    /// Bits in an address.
    const BITS: u8;

    /// The network of length `len` that holds the address; host bits are cleared. `len` is at most
    /// [`Self::BITS`].
    fn from_bits(bits: u128, len: u8) -> Self {
        Self::new(Self::to_address(bits), len).masked()
    }

    /// The network an address and a length name, host bits and all. `length` is at most
    /// [`Self::BITS`].
    fn new(address: Self::Address, length: u8) -> Self;

    /// The address part, with the host bits if it has any.
    fn address(self) -> Self::Address;

    /// The prefix length.
    fn length(self) -> u8;

    /// An address as a number.
    fn to_bits(address: Self::Address) -> u128;

    /// A number as an address.
    fn to_address(bits: u128) -> Self::Address;

    /// Returns the number of addresses in a network of length `len`. `len` is above 0 for IPv6.
    fn size(len: u8) -> u128 {
        1 << (Self::BITS - len)
    }

    /// The first address, as a number.
    fn first(self) -> u128 {
        Self::to_bits(self.address()) & !self.host_mask()
    }

    /// The last address, as a number.
    fn last(self) -> u128 {
        self.first() | self.host_mask()
    }

    /// The same network with its host bits cleared.
    #[must_use]
    fn masked(self) -> Self {
        Self::new(Self::to_address(self.first()), self.length())
    }

    /// The bits of an address that do not belong to the network.
    fn host_mask(self) -> u128 {
        let host_bits = u32::from(Self::BITS - self.length());
        1_u128
            .checked_shl(host_bits)
            .map_or(u128::MAX, |size| size - 1)
    }
}

impl Prefix for Ipv4Net {
    type Address = Ipv4Addr;

    const BITS: u8 = 32;

    fn new(address: Ipv4Addr, length: u8) -> Self {
        Self::new_assert(address, length)
    }

    fn address(self) -> Ipv4Addr {
        self.addr()
    }

    fn length(self) -> u8 {
        self.prefix_len()
    }

    fn to_bits(address: Ipv4Addr) -> u128 {
        address.to_bits().into()
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "an IPv4 number has 32 bits"
    )]
    fn to_address(bits: u128) -> Ipv4Addr {
        Ipv4Addr::from_bits(bits as u32)
    }
}

impl Prefix for Ipv6Net {
    type Address = Ipv6Addr;

    const BITS: u8 = 128;

    fn new(address: Ipv6Addr, length: u8) -> Self {
        Self::new_assert(address, length)
    }

    fn address(self) -> Ipv6Addr {
        self.addr()
    }

    fn length(self) -> u8 {
        self.prefix_len()
    }

    fn to_bits(address: Ipv6Addr) -> u128 {
        address.to_bits()
    }

    fn to_address(bits: u128) -> Ipv6Addr {
        Ipv6Addr::from_bits(bits)
    }
}
