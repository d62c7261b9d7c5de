//! The ipip part of a link, both ways: IPv4 in IPv4, protocol 4.

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_route::link::{InfoIpTunnel, LinkMessage};
use rtnetlink::{LinkIpIp, LinkMessageBuilder};

/// The ends of an ipip device as the kernel reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IpipInfo {
    /// Outer source address; `None` if the route chooses one.
    pub local: Option<IpAddr>,
    /// The only other end; `None` if each packet's next hop is the other end.
    pub remote: Option<IpAddr>,
}

impl IpipInfo {
    pub(crate) fn from_attributes(attributes: &[InfoIpTunnel]) -> Self {
        let specified = |addr: IpAddr| Some(addr).filter(|addr| !addr.is_unspecified());
        let mut info = Self::default();
        for attribute in attributes {
            match attribute {
                InfoIpTunnel::Local(addr) => info.local = specified(*addr),
                InfoIpTunnel::Remote(addr) => info.remote = specified(*addr),
                _ => {}
            }
        }
        info
    }
}

/// An ipip device to create, whose next hop is chosen for each packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpipSpec {
    /// Interface name, at most 15 bytes.
    pub name: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Outer source address.
    pub local: Ipv4Addr,
}

impl IpipSpec {
    /// The kind of such a device.
    pub const KIND: &str = "ipip";

    /// As stock flannel: TTL of the inner packet, and "don't fragment" only where the inner packet
    /// has it.
    pub(crate) fn to_message(&self) -> LinkMessage {
        LinkMessageBuilder::<LinkIpIp>::new(&self.name)
            .mtu(self.mtu)
            .local(self.local)
            .ttl(0)
            .pmtudisc(false)
            .build()
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::{InfoData, LinkAttribute, LinkInfo};

    use super::*;

    #[test]
    fn what_is_sent_reads_back() {
        let local = Ipv4Addr::new(10, 9, 0, 1);
        let message = IpipSpec {
            name: "flannel.ipip".to_owned(),
            mtu: 1480,
            local,
        }
        .to_message();
        let infos = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::LinkInfo(infos) => Some(infos.clone()),
                _ => None,
            });
        let infos = infos.expect("link info");
        assert!(infos.iter().any(
            |info| matches!(info, LinkInfo::Kind(kind) if kind.to_string() == IpipSpec::KIND)
        ));
        let data = infos.iter().find_map(|info| match info {
            LinkInfo::Data(InfoData::IpTunnel(data)) => Some(data.clone()),
            _ => None,
        });
        let expected = IpipInfo {
            local: Some(local.into()),
            remote: None,
        };
        assert_eq!(
            IpipInfo::from_attributes(&data.expect("ipip data")),
            expected
        );
    }
}
