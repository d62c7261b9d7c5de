//! The guard: a second look at tunnel packets with which something is wrong, in a function of its own, so
//! that good ones pay nothing for it.
//!
//! It owns the verdict on them. The outer check comes first and covers whatever a stranger's packet looks like: the vxlan
//! device would also take it behind IP options, in fragments, to another address of this host, or with a frame inside that is no
//! IP packet. Only packets that end on this host, with our port and our VNI, are refused. What cannot be known passes.

use flannel_common::{
    addr::{Addr, Mac, same_addr},
    ethernet::EthernetHeader,
    guard::{Checks, DeviceKey, GuardMode, GuardWord, Suspect},
    ip::ExtensionHeader,
    maps::ONLY,
    node::FamilyConfig,
    outer::OuterHeaders,
    packet::{ETH_LEN, PROTO_FRAGMENT, PROTO_UDP, UDP_LEN, VXLAN_LEN},
    peer::VtepEntry,
    reason::Reason,
};

use crate::{
    bytes::Room,
    family::Family,
    maps::{ELSEWHERE, GUARD, SUSPECTS, VTEPS},
    node::Node,
    skb::Skb,
};

/// Extension headers that are looked behind; RFC 8200 knows no use for more. A packet with more of them is taken for one of our
/// tunnel: the kernel looks behind any number.
const EXTENSIONS: usize = 6;

/// EtherTypes of tags (IEEE 802.1Q), network order.
const VLAN: u32 = 0x8100_u16.to_be() as u32;
const SERVICE_VLAN: u32 = 0x88a8_u16.to_be() as u32;
/// The part of a tag that names the VLAN, if it is not 0.
pub(crate) const VLAN_ID: u32 = 0xfff;

/// Ethernet and outer IP header.
#[repr(C)]
#[derive(Clone, Copy)]
struct Start<F> {
    ethernet: EthernetHeader,
    ip: F,
}

/// Whether a packet with this outcome is to be looked at: what says that it is of our tunnel, or may be, and not whose.
#[inline(always)]
pub(crate) const fn concerns(found: Reason) -> bool {
    matches!(
        found,
        Reason::InnerOtherSource
            | Reason::InnerOtherMac
            | Reason::OtherProtocol
            | Reason::Malformed
            | Reason::OuterFragment
            | Reason::OuterUnusual
            | Reason::NotForUs
    )
}

/// The reason under which the packet is counted, which is also what becomes of it.
#[inline(never)]
pub(crate) fn look<F: Family>(skb: &Skb, node: &Node, found: Reason) -> Reason {
    let family = node.family::<F>();
    let Some(Start { ip, .. }) = skb.load::<Start<F>>(0, Room::Outer) else { return Reason::NotTunnel };
    let (found, udp) = match found {
        Reason::OuterUnusual | Reason::OuterFragment | Reason::NotForUs => match find_udp(skb, family, ip, found) {
            Ok(found) => found,
            Err(reason) => return reason,
        },
        // These were found behind outer headers that were as they should be.
        other => (other, ETH_LEN + size_of::<F>()),
    };
    let source = ip.source();
    // SAFETY: the entry is copied; an element that is replaced meanwhile is another's, and says as little wrong.
    match unsafe { VTEPS.get(source) }.map(|vtep| vtep.index) {
        None if is_for_this_host(skb, family, ip) => stranger::<F>(skb, node, source, udp + UDP_LEN + VXLAN_LEN),
        Some(index) if matches!(found, Reason::InnerOtherSource) => other_source::<F>(skb, node, source, index),
        _ => found,
    }
}

/// The same of a packet behind a tag that names no VLAN: the kernel takes the tag off.
#[inline(always)]
pub(crate) fn look_behind_tag<F: Family>(skb: &Skb, node: &Node) -> Reason {
    if node.family::<F>().has_tunnel() { look::<F>(skb, node, Reason::OuterUnusual) } else { Reason::NotTunnel }
}

/// A packet of another protocol, if it has a tag behind a tag and neither names a VLAN: the kernel takes such tags off, however many,
/// and delivers what is behind them. Nobody sends that, so it is not looked behind: `[unknown, refused]` is said of all.
#[inline(always)]
pub(crate) fn tag_in_tag(skb: &Skb, [unknown, refused]: [Reason; 2]) -> Reason {
    if skb.vlan_present() == 0 || !matches!(skb.protocol(), VLAN | SERVICE_VLAN) {
        return Reason::NotTunnel;
    }
    let Some(tag) = skb.load::<[u8; 2]>(ETH_LEN, Room::Extension) else { return Reason::NotTunnel };
    match in_force().outer {
        _ if u32::from(u16::from_be_bytes(*tag)) & VLAN_ID != 0 => Reason::NotTunnel,
        GuardMode::Off => Reason::NotTunnel,
        GuardMode::Audit => unknown,
        GuardMode::Enforce => refused,
    }
}

/// A packet that came into this host by a device and leaves for the underlay. From a pod to a peer's tunnel port, with
/// our VNI, it would be taken for one of this node's: masquerade gives it the node's address.
#[inline(always)]
pub(crate) fn pod_to_peer<F: Family>(skb: &Skb, node: &Node) -> Reason {
    let Some(Start { ip, .. }) = skb.view::<Start<F>>(0) else { return Reason::NotTunnel };
    // SAFETY: nothing of the value is read.
    pod_tunnel(skb, node, ip, || unsafe { VTEPS.get(ip.destination()) }.is_some())
}

/// A packet that a pod sends. To the tunnel port of this very node, at any address of it, the vxlan device would take the frame
/// inside for a peer's.
#[inline(never)]
pub(crate) fn pod_to_node<F: Family>(skb: &Skb, node: &Node) -> Reason {
    if !node.family::<F>().has_tunnel() {
        return Reason::NotTunnel;
    }
    // By helper: a pod decides which part of its packets lies in one piece.
    let Some(Start { ip, .. }) = skb.load::<Start<F>>(0, Room::Outer) else { return Reason::NotTunnel };
    pod_tunnel(skb, node, ip, || skb.ends_here::<F>(ip.source(), ip.destination()))
}

/// A pod's packet, which the tunnel device of another node or of this one takes if `arrives` says so.
#[inline(always)]
fn pod_tunnel<F: Family>(skb: &Skb, node: &Node, ip: &F, arrives: impl FnOnce() -> bool) -> Reason {
    if ip.protocol() != PROTO_UDP && !F::is_extension(ip.protocol()) {
        return Reason::NotTunnel;
    }
    let family = node.family::<F>();
    let mode = in_force().outer;
    if matches!(mode, GuardMode::Off) || find_udp(skb, family, ip, Reason::NotTunnel).is_err() || !arrives() {
        return Reason::NotTunnel;
    }
    let enforced = matches!(mode, GuardMode::Enforce);
    let reason = if enforced { Reason::RefusedPodTunnel } else { Reason::PodTunnel };
    suspect(mode, ip.source(), reason, enforced, node);
    reason
}

/// Whether the vxlan device will get the packet: its socket is bound to no address, so it takes what is sent to any of this
/// host's. What another node's packet on its way through this one is not.
#[inline(always)]
fn is_for_this_host<F: Family>(skb: &Skb, family: &FamilyConfig, ip: &F) -> bool {
    same_addr(ip.destination(), family.vtep) || skb.ends_here::<F>(ip.source(), ip.destination())
}

/// Where the UDP header of our tunnel is in a packet with options, extension headers, in a fragment, cut short, or for another
/// address; and what to call that packet if a peer sent it.
#[inline(always)]
fn find_udp<F: Family>(skb: &Skb, family: &FamilyConfig, ip: &F, found: Reason) -> Result<(Reason, usize), Reason> {
    if ip.is_later_fragment() {
        return Err(if matches!(found, Reason::OuterUnusual) { Reason::NotTunnel } else { found });
    }
    let (mut at, mut protocol) = (ETH_LEN + ip.header_len() as usize, ip.protocol());
    let mut is_fragment = ip.is_fragment();
    for _ in 0..EXTENSIONS {
        if !F::is_extension(protocol) {
            break;
        }
        let header: &ExtensionHeader = skb.load(at, Room::Extension).ok_or(Reason::NotTunnel)?;
        if protocol == PROTO_FRAGMENT {
            if header.is_later_fragment() {
                return Err(Reason::NotTunnel);
            }
            is_fragment = true;
        }
        (at, protocol) = (at + header.len(protocol), header.next());
    }
    if F::is_extension(protocol) {
        return Ok((found, at));
    }
    if protocol != PROTO_UDP {
        return Err(Reason::NotTunnel);
    }
    let udp: &[u8; UDP_LEN] = skb.load(at, Room::Transport).ok_or(Reason::NotTunnel)?;
    if udp[2] != family.port[0] || udp[3] != family.port[1] {
        return Err(Reason::NotTunnel);
    }
    // What is too short for a tunnel packet is none: the device drops it, and it may be the answer to what was masqueraded to our
    // port. Of a fragment the rest is to come.
    match skb.load::<[u8; VXLAN_LEN]>(at + UDP_LEN, Room::Vxlan) {
        None if !is_fragment => Err(Reason::NotTunnel),
        Some(vxlan) if u32::from_be_bytes([0, vxlan[4], vxlan[5], vxlan[6]]) != family.vni => Err(Reason::OtherVni),
        _ if !same_addr(ip.destination(), family.vtep) => Ok((Reason::NotForUs, at)),
        _ if is_fragment => Ok((Reason::OuterFragment, at)),
        _ => Ok((found, at)),
    }
}

/// A packet whose outer source is no peer's; its frame begins at `frame`.
#[inline(always)]
fn stranger<F: Family>(skb: &Skb, node: &Node, source: Addr, frame: usize) -> Reason {
    let mode = in_force().outer;
    let enforced = matches!(mode, GuardMode::Enforce) && !comes_from_elsewhere::<F>(skb, frame);
    let reason = if enforced { Reason::RefusedVtep } else { Reason::UnknownVtep };
    suspect(mode, source, reason, enforced, node);
    reason
}

/// Whether the frame was made by the tunnel device of a peer whose packets may come from another address than it has.
#[inline(always)]
fn comes_from_elsewhere<F: Family>(skb: &Skb, frame: usize) -> bool {
    let Some(ethernet) = skb.load::<EthernetHeader>(frame, Room::Inner) else { return false };
    is_elsewhere::<F>(ethernet.source())
}

/// Whether this is such a device.
#[inline(always)]
pub(crate) fn is_elsewhere<F: Family>(mac: Mac) -> bool {
    let key = DeviceKey { mac, family: F::ETHERTYPE };
    // SAFETY: nothing of the value is read.
    unsafe { ELSEWHERE.get(key) }.is_some()
}

/// A packet of a known peer whose inner source is not in the subnet by which it was looked for.
#[inline(always)]
fn other_source<F: Family>(skb: &Skb, node: &Node, source: Addr, index: u32) -> Reason {
    let family = node.family::<F>();
    let Some(inner) = skb.load::<F>(OuterHeaders::<F>::LEN, Room::Inner) else { return Reason::Malformed };
    let entry = inner.source_subnet(family).and_then(|subnet| F::peers().get(subnet));
    let owner = entry.map_or(Addr::NONE, |entry| entry.vtep);
    // The entry of a peer is invalid while it is rewritten, or for as long as an agent is dead that was killed over that.
    if same_addr(owner, source) {
        return Reason::PeerChanging;
    }
    if index == VtepEntry::UNNUMBERED && same_addr(owner, Addr::NONE) {
        return Reason::SenderUnnumbered;
    }
    let mode = in_force().inner;
    let enforced = matches!(mode, GuardMode::Enforce);
    let reason = if enforced { Reason::RefusedSource } else { Reason::InnerOtherSource };
    suspect(mode, source, reason, enforced, node);
    reason
}

#[inline(always)]
pub(crate) fn in_force() -> Checks<GuardMode> {
    GUARD.get(ONLY).map_or_else(GuardWord::default, |word| *word).in_force()
}

/// Remembers where the packet came from.
#[inline(always)]
pub(crate) fn suspect(mode: GuardMode, source: Addr, reason: Reason, dropped: bool, node: &Node) {
    if matches!(mode, GuardMode::Off) {
        return;
    }
    match SUSPECTS.get_ptr_mut(source) {
        Some(known) => {
            // SAFETY: the look-up gave an element of the map, which lives as long as it; other CPUs may write it too, and what
            // is lost then is a count.
            let known = unsafe { &mut *known };
            *known = known.with(reason, dropped, node.now);
        }
        // It is told of counts alone: a table that refuses loses nothing else.
        None => drop(SUSPECTS.insert(source, Suspect::default().with(reason, dropped, node.now), 0)),
    }
}
