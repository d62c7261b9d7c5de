//! Links: what a dump shows of a network device, and the verbs on it.

use std::{collections::BTreeMap, fmt};

use flannel_common::packet::addr::Mac;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{
        InfoData, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage, LinkXdp,
        XdpAttached,
    },
};
use nix::errno::Errno;
use rtnetlink::LinkUnspec;

use crate::links::{
    device_name::DeviceName,
    ipip::{IpipInfo, IpipSpec},
    veth::VethSpec,
    vxlan::{VxlanInfo, VxlanSpec},
};
use crate::{
    Netlink,
    error::{Fault, NetlinkError, Verb},
    reply::Prune,
    transport::Dump,
};

/// The largest packets that a device takes in one piece to send (GSO) and makes on receipt (GRO):
/// `IFLA_GSO_*`, `IFLA_TSO_*` and `IFLA_GRO_*` of [include/uapi/linux/if_link.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/if_link.h). Sizes are in
/// bytes; `None` where the kernel does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffloadLimits {
    /// `IFLA_GSO_MAX_SIZE`; of IPv6 only on a kernel that has the next one.
    pub gso_max_size: Option<u32>,
    /// `IFLA_GSO_IPV4_MAX_SIZE` (kernel 6.3).
    pub gso_ipv4_max_size: Option<u32>,
    /// `IFLA_GSO_MAX_SEGS`: segments in one packet.
    pub gso_max_segs: Option<u32>,
    /// `IFLA_TSO_MAX_SIZE` (kernel 5.19): the bound of the hardware on the size.
    pub tso_max_size: Option<u32>,
    /// `IFLA_TSO_MAX_SEGS` (kernel 5.19): the bound of the hardware on the segments.
    pub tso_max_segs: Option<u32>,
    /// `IFLA_GRO_MAX_SIZE` (kernel 5.19); of IPv6 only on a kernel that has the next one.
    pub gro_max_size: Option<u32>,
    /// `IFLA_GRO_IPV4_MAX_SIZE` (kernel 6.3).
    pub gro_ipv4_max_size: Option<u32>,
}

/// A network device as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the kernel's flags, one to one"
)]
pub struct Link {
    /// Interface index, unique in the namespace.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// MTU in bytes, without the link-layer header.
    pub mtu: u32,
    /// Largest MTU the device accepts (`IFLA_MAX_MTU`); `None` when the kernel does not say.
    pub max_mtu: Option<u32>,
    /// Ethernet address; `None` for devices with another kind of address or none.
    pub mac: Option<Mac>,
    /// Administratively up (`IFF_UP`).
    pub up: bool,
    /// Up and with carrier (`IFF_RUNNING`).
    pub running: bool,
    /// Loopback device (`IFF_LOOPBACK`).
    pub loopback: bool,
    /// Hardware type, `ARPHRD_*`: 1 is Ethernet.
    pub arphrd: u16,
    /// Driver kind: `vxlan`, `veth`, `bridge`; `None` for physical devices.
    pub kind: Option<String>,
    /// Index of the bridge, bond or VRF this device is enslaved to.
    pub controller: Option<u32>,
    /// Index of the device below or, for a veth, of its peer (`IFLA_LINK`). May be of another
    /// namespace, see [`Link::netns`].
    pub lower: Option<u32>,
    /// Id of the namespace `lower` is in (`IFLA_LINK_NETNSID`); `None` when it is this one.
    pub netns: Option<i32>,
    /// Kind of the root qdisc: `noqueue` where the device has no queue.
    pub qdisc: Option<String>,
    /// An XDP program is on the device.
    pub xdp: bool,
    /// A text set on it by an administrator or a program (`IFLA_IFALIAS`).
    pub alias: Option<String>,
    /// The largest packets that it takes and makes.
    pub limits: OffloadLimits,
    /// The tunnel settings of a vxlan device; `None` for other kinds.
    pub vxlan: Option<VxlanInfo>,
    /// The ends of an ipip device; `None` for other kinds.
    pub ipip: Option<IpipInfo>,
}

impl OffloadLimits {
    /// Limits that the kernel does not show.
    const NONE: Self = Self {
        gso_max_size: None,
        gso_ipv4_max_size: None,
        gso_max_segs: None,
        tso_max_size: None,
        tso_max_segs: None,
        gro_max_size: None,
        gro_ipv4_max_size: None,
    };

    const fn take(&mut self, attribute: &LinkAttribute) {
        let (limit, value) = match attribute {
            LinkAttribute::GsoMaxSize(value) => (&mut self.gso_max_size, *value),
            LinkAttribute::GsoIpv4MaxSize(value) => (&mut self.gso_ipv4_max_size, *value),
            LinkAttribute::GsoMaxSegs(value) => (&mut self.gso_max_segs, *value),
            LinkAttribute::TsoMaxSize(value) => (&mut self.tso_max_size, *value),
            LinkAttribute::TsoMaxSegs(value) => (&mut self.tso_max_segs, *value),
            LinkAttribute::GroMaxSize(value) => (&mut self.gro_max_size, *value),
            LinkAttribute::GroIpv4MaxSize(value) => (&mut self.gro_ipv4_max_size, *value),
            _ => return,
        };
        *limit = Some(value);
    }
}

impl Link {
    /// `ARPHRD_ETHER`.
    pub const ETHER: u16 = 1;

    /// An Ethernet device that is up, of no kind and with nothing special about it; for tests to
    /// alter.
    pub fn ethernet(index: u32, name: &str, mtu: u32) -> Self {
        Self {
            name: name.to_owned(),
            mtu,
            up: true,
            running: true,
            arphrd: Self::ETHER,
            ..Self::unknown(index)
        }
    }

    /// Returns a device of which only the index is known.
    const fn unknown(index: u32) -> Self {
        Self {
            index,
            name: String::new(),
            mtu: 0,
            max_mtu: None,
            mac: None,
            up: false,
            running: false,
            loopback: false,
            arphrd: 0,
            kind: None,
            controller: None,
            lower: None,
            netns: None,
            qdisc: None,
            xdp: false,
            alias: None,
            limits: OffloadLimits::NONE,
            vxlan: None,
            ipip: None,
        }
    }

    pub(crate) fn from_message(message: &LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut link = Self {
            up: flags.contains(LinkFlags::Up),
            running: flags.contains(LinkFlags::Running),
            loopback: flags.contains(LinkFlags::Loopback),
            arphrd: message.header.link_layer_type.into(),
            ..Self::unknown(message.header.index)
        };
        message
            .attributes
            .iter()
            .for_each(|attribute| link.take(attribute));
        link
    }

    fn take(&mut self, attribute: &LinkAttribute) {
        match attribute {
            LinkAttribute::IfName(name) => self.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => self.mtu = *mtu,
            // Zero is the kernel's "no limit known".
            LinkAttribute::MaxMtu(mtu) => self.max_mtu = (*mtu != 0).then_some(*mtu),
            LinkAttribute::Address(bytes) => self.mac = mac_from_bytes(bytes),
            LinkAttribute::Controller(index) => self.controller = Some(*index),
            LinkAttribute::Link(index) => self.lower = Some(*index),
            LinkAttribute::LinkNetNsId(id) => self.netns = Some(*id),
            LinkAttribute::Qdisc(kind) => self.qdisc = Some(kind.clone()),
            LinkAttribute::Xdp(attributes) => self.xdp = has_xdp(attributes),
            LinkAttribute::IfAlias(text) => self.alias = Some(text.clone()),
            LinkAttribute::LinkInfo(infos) => infos.iter().for_each(|info| self.take_info(info)),
            other => self.limits.take(other),
        }
    }

    fn take_info(&mut self, info: &LinkInfo) {
        match info {
            LinkInfo::Kind(kind) => self.kind = Some(kind.to_string()),
            LinkInfo::Data(InfoData::Vxlan(attributes)) => {
                self.vxlan = Some(VxlanInfo::from_attributes(attributes));
            }
            LinkInfo::Data(InfoData::IpTunnel(attributes))
                if self.kind.as_deref() == Some(IpipSpec::KIND) =>
            {
                self.ipip = Some(IpipInfo::from_attributes(attributes));
            }
            _ => {}
        }
    }
}

fn has_xdp(attributes: &[LinkXdp]) -> bool {
    attributes
        .iter()
        .any(|attribute| matches!(attribute, LinkXdp::Attached(how) if *how != XdpAttached::None))
}

/// An Ethernet address from its bytes; `None` unless there are six.
pub(crate) fn mac_from_bytes(bytes: &[u8]) -> Option<Mac> {
    bytes.try_into().ok().map(Mac)
}

/// Packets and bytes of a link since it was made. An aggregate of GRO or GSO counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that the link received.
    pub received_packets: u64,
    /// Their bytes, with Ethernet headers where the link has these.
    pub received_bytes: u64,
    /// Packets that the link transmitted.
    pub sent_packets: u64,
    /// Their bytes, likewise.
    pub sent_bytes: u64,
}

/// The counters of the link that a message describes, with its interface index.
fn counters_of(message: &RouteNetlinkMessage) -> Option<(u32, LinkCounters)> {
    let RouteNetlinkMessage::NewLink(link) = message else {
        return None;
    };
    let counters = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(LinkCounters {
                received_packets: stats.rx_packets,
                received_bytes: stats.rx_bytes,
                sent_packets: stats.tx_packets,
                sent_bytes: stats.tx_bytes,
            }),
            _ => None,
        });
    Some((link.header.index, counters?))
}

impl Netlink {
    /// All links of the namespace.
    pub async fn links(&self) -> Result<Vec<Link>, NetlinkError> {
        let mut message = LinkMessage::default();
        // Statistics are most of a dump and the costly part of it.
        message
            .attributes
            .push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let dump = self.route.dump(RouteNetlinkMessage::GetLink(message)).await;
        let entries = dump
            .map_err(|fault| fault.on(Verb::Read, "the links"))?
            .readable();
        Ok(entries.iter().filter_map(link_of).collect())
    }

    /// The counters of every link of the namespace, by interface index. Costs more than
    /// [`Self::links`], which leaves them out.
    pub async fn link_counters(&self) -> Result<BTreeMap<u32, LinkCounters>, NetlinkError> {
        let dump = self
            .route
            .dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))
            .await;
        let entries = dump
            .map_err(|fault| fault.on(Verb::Read, "the counters of links"))?
            .readable();
        Ok(entries.iter().filter_map(counters_of).collect())
    }

    /// The link of that name; `None` when there is none.
    pub async fn link_by_name(&self, name: &str) -> Result<Option<Link>, NetlinkError> {
        let query = LinkUnspec::new_with_name(name).build();
        self.link(query, format_args!("device {name}")).await
    }

    /// The link of that index; `None` when there is none.
    pub async fn link_by_index(&self, index: u32) -> Result<Option<Link>, NetlinkError> {
        let query = LinkUnspec::new_with_index(index).build();
        self.link(query, format_args!("device {}", DeviceName(index)))
            .await
    }

    /// The other end of a veth, as it is in its own namespace (kernel 4.20; `rtnl_getlink()` in
    /// [net/core/rtnetlink.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/rtnetlink.c)); `None` when it is
    /// gone, or its namespace has no number here. The kernel answers across namespaces, so this
    /// enters none.
    pub async fn link_peer(&self, link: &Link) -> Result<Option<Link>, NetlinkError> {
        let Some(index) = link.lower else {
            return Ok(None);
        };
        let mut query = LinkUnspec::new_with_index(index).build();
        query
            .attributes
            .extend(link.netns.map(LinkAttribute::IfNetnsId));
        match self
            .link(query, format_args!("the other end of {}", link.name))
            .await
        {
            // No namespace has that number any more.
            Err(error) if error.errno() == Some(Errno::EINVAL) => Ok(None),
            other => other,
        }
    }

    /// All links of another namespace, by its number in this one (kernel 4.16); `None` when no
    /// namespace has that number any more. This does not enter the namespace.
    pub async fn links_of(&self, netns: i32) -> Result<Option<Vec<Link>>, NetlinkError> {
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        message.attributes.push(LinkAttribute::IfNetnsId(netns));
        let dump = match self.route.dump(RouteNetlinkMessage::GetLink(message)).await {
            Err(fault) if fault.errno() == Some(Errno::EINVAL) => return Ok(None),
            other => other.and_then(Dump::complete),
        };
        let entries = dump.map_err(|fault| {
            fault.on(Verb::Read, format_args!("the links of namespace {netns}"))
        })?;
        Ok(Some(entries.iter().filter_map(link_of).collect()))
    }

    async fn link(
        &self,
        query: LinkMessage,
        object: fmt::Arguments<'_>,
    ) -> Result<Option<Link>, NetlinkError> {
        match self.route.fetch(RouteNetlinkMessage::GetLink(query)).await {
            Ok(answer) => Ok(link_of(&answer)),
            Err(fault) if fault.errno() == Some(Errno::ENODEV) => Ok(None),
            Err(fault) => Err(fault.on(Verb::Read, object)),
        }
    }

    /// Creates a vxlan device, down. [`NetlinkError::is_exists`] when the name is taken, or the VNI
    /// and port by another device of this namespace.
    pub async fn create_vxlan(&self, spec: &VxlanSpec) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewLink(spec.to_message());
        let created = self.route.command(message, NLM_F_CREATE | NLM_F_EXCL).await;
        created.map_err(|fault| fault.on(Verb::Create, format_args!("vxlan device {}", spec.name)))
    }

    /// Creates an ipip device, down. [`NetlinkError::is_unsupported`] where the kernel has none.
    pub async fn create_ipip(&self, spec: &IpipSpec) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewLink(spec.to_message());
        let created = self.route.command(message, NLM_F_CREATE | NLM_F_EXCL).await;
        created.map_err(|fault| fault.on(Verb::Create, format_args!("ipip device {}", spec.name)))
    }

    /// Creates a veth, this end up. [`NetlinkError::is_gone`] when the bridge or the process is not
    /// there.
    pub async fn create_veth(&self, spec: &VethSpec) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewLink(spec.to_message());
        let created = self.route.command(message, NLM_F_CREATE | NLM_F_EXCL).await;
        created.map_err(|fault| fault.on(Verb::Create, format_args!("veth device {}", spec.name)))
    }

    /// Sets a link administratively up.
    pub async fn set_up(&self, index: u32) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).up().build();
        self.set_link(
            message,
            format_args!("state of {} to up", DeviceName(index)),
        )
        .await
    }

    /// Sets the MTU, in bytes without the link-layer header.
    pub async fn set_mtu(&self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).mtu(mtu).build();
        self.set_link(
            message,
            format_args!("MTU of {} to {mtu}", DeviceName(index)),
        )
        .await
    }

    /// Sets the Ethernet address. A vxlan device takes another one while it is up.
    pub async fn set_mac(&self, index: u32, mac: Mac) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index)
            .address(mac.0.to_vec())
            .build();
        self.set_link(
            message,
            format_args!("Ethernet address of {} to {mac}", DeviceName(index)),
        )
        .await
    }

    /// Sets the alias, up to 255 bytes; an empty one removes it.
    pub async fn set_alias(&self, index: u32, alias: &str) -> Result<(), NetlinkError> {
        let attribute = LinkAttribute::IfAlias(alias.to_owned());
        let message = LinkUnspec::new_with_index(index)
            .append_extra_attribute(attribute)
            .build();
        self.set_link(
            message,
            format_args!("alias of {} to {alias:?}", DeviceName(index)),
        )
        .await
    }

    async fn set_link(
        &self,
        message: LinkMessage,
        object: fmt::Arguments<'_>,
    ) -> Result<(), NetlinkError> {
        let done = self
            .route
            .command(RouteNetlinkMessage::SetLink(message), 0)
            .await;
        done.map_err(|fault| fault.on(Verb::Change, object))
    }

    /// Deletes a link, and with it every address, route, neighbour and FDB entry on it.
    pub async fn delete_link(&self, index: u32) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).build();
        let device = format!("device {}", DeviceName(index));
        let deleted = self
            .route
            .command(RouteNetlinkMessage::DelLink(message), 0)
            .await;
        deleted.map_err(|fault: Fault| fault.on(Verb::Delete, device))
    }
}

impl Prune for RouteNetlinkMessage {
    /// A link has some 18 kB as it is decoded, most of it settings of IPv4 and IPv6.
    fn prune(&mut self) {
        if let Self::NewLink(link) = self {
            link.attributes.retain(is_read);
            link.attributes.shrink_to_fit();
        }
    }
}

/// Returns true if a field of [`Link`] or [`LinkCounters`] is read from the attribute.
const fn is_read(attribute: &LinkAttribute) -> bool {
    matches!(
        attribute,
        LinkAttribute::IfName(_)
            | LinkAttribute::Mtu(_)
            | LinkAttribute::MaxMtu(_)
            | LinkAttribute::Address(_)
            | LinkAttribute::Controller(_)
            | LinkAttribute::Link(_)
            | LinkAttribute::LinkNetNsId(_)
            | LinkAttribute::Qdisc(_)
            | LinkAttribute::Xdp(_)
            | LinkAttribute::IfAlias(_)
            | LinkAttribute::LinkInfo(_)
            | LinkAttribute::Stats64(_)
            | LinkAttribute::GsoMaxSize(_)
            | LinkAttribute::GsoIpv4MaxSize(_)
            | LinkAttribute::GsoMaxSegs(_)
            | LinkAttribute::TsoMaxSize(_)
            | LinkAttribute::TsoMaxSegs(_)
            | LinkAttribute::GroMaxSize(_)
            | LinkAttribute::GroIpv4MaxSize(_)
    )
}

fn link_of(message: &RouteNetlinkMessage) -> Option<Link> {
    match message {
        RouteNetlinkMessage::NewLink(link) => Some(Link::from_message(link)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_attributes_of_a_link_are_not_held() {
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfName("veth1".to_owned()),
            LinkAttribute::TxQueueLen(1000),
            LinkAttribute::Mtu(1450),
            LinkAttribute::Group(0),
            LinkAttribute::AfSpecUnspec(Vec::new()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind("veth".into())]),
        ];
        let whole = Link::from_message(&link);
        let mut message = RouteNetlinkMessage::NewLink(link);
        message.prune();
        assert_eq!(link_of(&message), Some(whole));
        let RouteNetlinkMessage::NewLink(pruned) = message else {
            panic!("still a link")
        };
        assert_eq!(
            (pruned.attributes.len(), pruned.attributes.capacity()),
            (3, 3)
        );
    }
}
