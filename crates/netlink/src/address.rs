//! Interface addresses.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
pub use netlink_packet_route::address::{AddressFlags, AddressScope};
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
};
use nix::errno::Errno;
use rtnetlink::AddressMessageBuilder;

use super::{
    Link, Netlink,
    error::{NetlinkError, Verb},
};
use crate::links::device_name::DeviceName;

/// The identity of an address: the link, and the address with its prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressKey {
    /// Interface index.
    pub ifindex: u32,
    /// The host's own address. On a point-to-point link this is not the peer's.
    pub addr: IpAddr,
    /// Prefix length in bits.
    pub prefix_len: u8,
}

impl fmt::Display for AddressKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "address {}/{} on {}",
            self.addr,
            self.prefix_len,
            DeviceName(self.ifindex)
        )
    }
}

/// An address as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The address and its link.
    pub key: AddressKey,
    /// The scope in which it is valid.
    pub scope: AddressScope,
    /// `IFA_F_*`.
    pub flags: AddressFlags,
}

impl Address {
    /// Not leased: added by an administrator or by us.
    pub const fn is_permanent(&self) -> bool {
        self.flags.contains(AddressFlags::Permanent)
    }

    /// Still valid, but not to be chosen for anything new.
    pub const fn is_deprecated(&self) -> bool {
        self.flags.contains(AddressFlags::Deprecated)
    }

    /// IPv6 duplicate detection found it in use elsewhere.
    pub const fn is_duplicate(&self) -> bool {
        self.flags.contains(AddressFlags::Dadfailed)
    }

    /// IPv6 duplicate detection still runs; the kernel never chooses it as a source
    /// (`__ipv6_dev_get_saddr()` in [net/ipv6/addrconf.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv6/addrconf.c)).
    pub const fn is_tentative(&self) -> bool {
        self.flags.contains(AddressFlags::Tentative)
            && !self.flags.contains(AddressFlags::Optimistic)
    }

    /// An IPv4 address behind another one of its subnet. For IPv6 the same bit says "temporary".
    pub const fn is_secondary(&self) -> bool {
        self.key.addr.is_ipv4() && self.flags.contains(AddressFlags::Secondary)
    }

    /// Added without duplicate detection, as tools do that move an address between hosts.
    pub const fn is_without_detection(&self) -> bool {
        self.flags.contains(AddressFlags::Nodad)
    }

    /// Returns true for an IPv6 privacy address. For IPv4 the same bit means "secondary", which is
    /// not a reason to avoid the address.
    pub const fn is_temporary(&self) -> bool {
        self.key.addr.is_ipv6() && self.flags.contains(AddressFlags::Secondary)
    }

    pub(super) fn from_message(message: &AddressMessage) -> Option<Self> {
        let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
        let (mut local, mut prefix_addr) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(addr) => local = Some(*addr),
                AddressAttribute::Address(addr) => prefix_addr = Some(*addr),
                AddressAttribute::Flags(all) => flags = *all,
                _ => {}
            }
        }
        let key = AddressKey {
            ifindex: message.header.index,
            addr: local.or(prefix_addr)?,
            prefix_len: message.header.prefix_len,
        };
        Some(Self {
            key,
            scope: message.header.scope,
            flags,
        })
    }
}

impl AddressKey {
    fn to_message(self) -> AddressMessage {
        match self.addr {
            IpAddr::V4(addr) => AddressMessageBuilder::<Ipv4Addr>::new()
                .index(self.ifindex)
                .address(addr, self.prefix_len)
                .build(),
            IpAddr::V6(addr) => {
                let built = AddressMessageBuilder::<Ipv6Addr>::new().index(self.ifindex);
                let mut message = built.address(addr, self.prefix_len).build();
                // Ours are unique by their lease; while the kernel asks whether they are, it uses
                // them for nothing.
                message.header.flags |= AddressHeaderFlags::Nodad;
                message
            }
        }
    }
}

impl Netlink {
    /// All addresses of the namespace, both families, in kernel order.
    pub async fn addresses(&self) -> Result<Vec<Address>, NetlinkError> {
        let dump = self
            .route
            .dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))
            .await;
        let entries = dump
            .map_err(|fault| fault.on(Verb::Read, "the addresses"))?
            .readable();
        Ok(entries.iter().filter_map(address_of).collect())
    }

    /// Returns the addresses of the other end of a veth, without entering its namespace (kernel
    /// 4.20). Empty where that namespace has no number here.
    pub async fn addresses_of_peer(&self, link: &Link) -> Result<Vec<IpAddr>, NetlinkError> {
        let (Some(index), Some(namespace)) = (link.lower, link.netns) else {
            return Ok(Vec::new());
        };
        let mut message = AddressMessage::default();
        message.header.index = index;
        message
            .attributes
            .push(AddressAttribute::TargetNetNsId(namespace));
        let dump = match self
            .route
            .dump(RouteNetlinkMessage::GetAddress(message))
            .await
        {
            // The namespace, or the other end, is gone.
            Err(fault) if matches!(fault.errno(), Some(Errno::EINVAL | Errno::ENODEV)) => {
                return Ok(Vec::new());
            }
            other => other.map_err(|fault| {
                fault.on(
                    Verb::Read,
                    format_args!("the addresses of the other end of {}", link.name),
                )
            })?,
        };
        let entries = dump.readable();
        let addresses = entries
            .iter()
            .filter_map(address_of)
            .map(|address| address.key);
        Ok(addresses
            .filter(|key| key.ifindex == index)
            .map(|key| key.addr)
            .collect())
    }

    /// Adds an address of global scope. Succeeds if the address already exists.
    pub async fn add_address(&self, key: AddressKey) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewAddress(key.to_message());
        let added = self
            .route
            .command(message, NLM_F_CREATE | NLM_F_REPLACE)
            .await;
        added.map_err(|fault| fault.on(Verb::Replace, key))
    }

    /// Deletes an address; [`NetlinkError::is_gone`] when it was not there.
    pub async fn del_address(&self, key: AddressKey) -> Result<(), NetlinkError> {
        let deleted = self
            .route
            .command(RouteNetlinkMessage::DelAddress(key.to_message()), 0)
            .await;
        deleted.map_err(|fault| fault.on(Verb::Delete, key))
    }
}

fn address_of(message: &RouteNetlinkMessage) -> Option<Address> {
    match message {
        RouteNetlinkMessage::NewAddress(address) => Address::from_message(address),
        _ => None,
    }
}
