//! The vxlan part of a link, both ways: reading it, and the message that creates one.
//!
//! Creation sends exactly the attributes stock flannel sends: `UDP_CSUM` is left out (the kernel
//! then checksums IPv4 outer packets, `vxlan_nl2conf()` in [drivers/net/vxlan/vxlan_core.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/drivers/net/vxlan/vxlan_core.c)), and packets
//! over IPv6 leave with checksums. An IPv4 tunnel is the same to the bit; one over IPv6 may differ
//! by taking packets without a checksum.

use std::net::IpAddr;

use flannel_common::packet::addr::Mac;
use netlink_packet_route::link::{InfoVxlan, LinkMessage};
use rtnetlink::{LinkMessageBuilder, LinkVxlan};

/// A vxlan device's tunnel parameters as the kernel reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the kernel's attributes, one to one"
)]
pub struct VxlanInfo {
    /// VXLAN network identifier, 24 bits.
    pub vni: u32,
    /// UDP destination port, host order.
    pub port: u16,
    /// Index of the underlay device.
    pub lower: Option<u32>,
    /// Outer source address.
    pub local: Option<IpAddr>,
    /// Default destination, a multicast group or a unicast address. Flannel sets none.
    pub remote: Option<IpAddr>,
    /// The device fills its own FDB from received packets.
    pub learning: bool,
    /// Group-based policy extension.
    pub gbp: bool,
    /// Metadata mode (`external`): one device for all VNIs, steered per packet.
    pub external: bool,
    /// Answers ARP and ND from the neighbour table.
    pub proxy: bool,
    /// Route short-circuit.
    pub rsc: bool,
    /// Reports FDB misses by netlink.
    pub l2miss: bool,
    /// Reports neighbour misses by netlink.
    pub l3miss: bool,
    /// Sends UDP checksums in IPv4 outer packets.
    pub udp_csum: bool,
    /// Sends no UDP checksum in IPv6 outer packets.
    pub udp_zero_csum6_tx: bool,
    /// Accepts IPv6 outer packets without UDP checksum.
    pub udp_zero_csum6_rx: bool,
}

impl VxlanInfo {
    pub(crate) fn from_attributes(attributes: &[InfoVxlan]) -> Self {
        let mut info = Self::default();
        for attribute in attributes {
            info.take(attribute);
        }
        info
    }

    fn take(&mut self, attribute: &InfoVxlan) {
        match *attribute {
            InfoVxlan::Id(vni) => self.vni = vni,
            InfoVxlan::Port(port) => self.port = port,
            InfoVxlan::Link(index) => self.lower = (index != 0).then_some(index),
            InfoVxlan::Local(addr) => self.local = specified(addr.into()),
            InfoVxlan::Local6(addr) => self.local = specified(addr.into()),
            InfoVxlan::Group(addr) => self.remote = specified(addr.into()),
            InfoVxlan::Group6(addr) => self.remote = specified(addr.into()),
            InfoVxlan::Learning(on) => self.learning = on,
            InfoVxlan::Gbp => self.gbp = true,
            InfoVxlan::CollectMetadata(on) => self.external = on,
            InfoVxlan::Proxy(on) => self.proxy = on,
            InfoVxlan::Rsc(on) => self.rsc = on,
            InfoVxlan::L2Miss(on) => self.l2miss = on,
            InfoVxlan::L3Miss(on) => self.l3miss = on,
            InfoVxlan::UDPCsum(on) => self.udp_csum = on,
            InfoVxlan::UDPZeroCsumTX(on) => self.udp_zero_csum6_tx = on,
            InfoVxlan::UDPZeroCsumRX(on) => self.udp_zero_csum6_rx = on,
            _ => {}
        }
    }
}

fn specified(addr: IpAddr) -> Option<IpAddr> {
    (!addr.is_unspecified()).then_some(addr)
}

/// A vxlan device to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VxlanSpec {
    /// Interface name, at most 15 bytes.
    pub name: String,
    /// VXLAN network identifier, 24 bits.
    pub vni: u32,
    /// UDP destination port, host order. Always sent: the kernel's own default is a module
    /// parameter.
    pub port: u16,
    /// MTU in bytes. The kernel lowers it to the underlay's minus 50 (IPv4 outer) or 70 (IPv6
    /// outer): `vxlan_config_apply()` in [drivers/net/vxlan/vxlan_core.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/drivers/net/vxlan/vxlan_core.c).
    pub mtu: u32,
    /// Ethernet address. Given at creation it counts as set by an administrator, and udev leaves it
    /// alone.
    pub mac: Mac,
    /// Index of the underlay device.
    pub lower: u32,
    /// Outer source address; its family is the tunnel's.
    pub local: IpAddr,
    /// Let the device learn from received packets.
    pub learning: bool,
    /// Group-based policy extension.
    pub gbp: bool,
    /// Take IPv6 outer packets without UDP checksum.
    pub udp_zero_csum6_rx: bool,
}

impl VxlanSpec {
    pub(crate) fn to_message(&self) -> LinkMessage {
        let link = LinkMessageBuilder::<LinkVxlan>::new(&self.name)
            .mtu(self.mtu)
            .address(self.mac.0.to_vec())
            .id(self.vni)
            .dev(self.lower)
            .port(self.port)
            .ttl(0)
            .tos(0)
            .learning(self.learning)
            .proxy(false)
            .rsc(false)
            .l2miss(false)
            .l3miss(false)
            .udp_zero_csum6_tx(false)
            .udp_zero_csum6_rx(self.udp_zero_csum6_rx);
        let link = match self.local {
            IpAddr::V4(addr) => link.local(addr),
            IpAddr::V6(addr) => link.local6(addr),
        };
        if self.gbp {
            link.gbp().build()
        } else {
            link.build()
        }
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::{InfoData, LinkAttribute, LinkInfo};

    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn spec(local: IpAddr) -> VxlanSpec {
        VxlanSpec {
            name: "flannel.1".into(),
            vni: 1,
            port: 8472,
            mtu: 1450,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            lower: 2,
            local,
            learning: false,
            gbp: false,
            udp_zero_csum6_rx: false,
        }
    }

    fn sent(spec: &VxlanSpec) -> Vec<InfoVxlan> {
        let message = spec.to_message();
        let infos = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::LinkInfo(infos) => Some(infos),
                _ => None,
            });
        let data = infos
            .expect("link info")
            .iter()
            .find_map(|info| match info {
                LinkInfo::Data(InfoData::Vxlan(data)) => Some(data.clone()),
                _ => None,
            });
        data.expect("vxlan data")
    }

    #[test]
    fn what_is_sent_reads_back() {
        for local in [
            IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ] {
            for (learning, gbp) in [(false, false), (true, true)] {
                let udp_zero_csum6_rx = local.is_ipv6();
                let spec = VxlanSpec {
                    learning,
                    gbp,
                    udp_zero_csum6_rx,
                    ..spec(local)
                };
                let expected = VxlanInfo {
                    vni: 1,
                    port: 8472,
                    lower: Some(2),
                    local: Some(local),
                    learning,
                    gbp,
                    udp_zero_csum6_rx,
                    ..VxlanInfo::default()
                };
                assert_eq!(VxlanInfo::from_attributes(&sent(&spec)), expected);
            }
        }
    }

    #[test]
    fn the_ipv4_checksum_attribute_is_left_to_the_kernel() {
        let sent = sent(&spec(Ipv4Addr::LOCALHOST.into()));
        assert!(
            !sent
                .iter()
                .any(|attribute| matches!(attribute, InfoVxlan::UDPCsum(_)))
        );
    }
}
