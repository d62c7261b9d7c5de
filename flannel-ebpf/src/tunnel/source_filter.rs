//! The source filter of the guard: a second examination of packets that are, or may be, of the
//! tunnel and have no peer as their source. It is a separate function, so that good packets do not
//! pay for it.
//!
//! It owns the verdict on them. The outer check comes first and covers any form of packet that the
//! vxlan device accepts: with IP options, in fragments, to another address of this host, behind
//! tags without a VLAN, or with a frame inside that is not an IP packet. Only packets that are
//! delivered on this host, to our port and our VNI, are refused. Unknown packets pass.

use flannel_common::{
    abi::{
        guard::{Checks, DeviceKey, GuardMode, GuardWord, Violation},
        maps::ONLY,
        node::FamilyConfig,
        peer::VtepEntry,
        reason::Reason,
    },
    packet::{ETH_LEN, PROTO_FRAGMENT, PROTO_UDP, UDP_LEN, VXLAN_LEN},
    packet::{
        addr::{Addr, Mac, same_addr},
        ethernet::EthernetHeader,
        ip::ExtensionHeader,
        outer::OuterHeaders,
    },
};

use crate::{
    maps::{GUARD, NAT_VTEPS, VIOLATIONS, VTEPS},
    node::Node,
    packet::{
        family::Family,
        load_buf::LoadBuf,
        skb::{Skb, VLAN_ID},
    },
};

/// IPv6 extension headers that are skipped. [RFC 8200, section
/// 4.1](https://www.rfc-editor.org/rfc/rfc8200#section-4.1) knows no use for more, but the kernel
/// skips any number (`ip6_protocol_deliver_rcu()` in [net/ipv6/ip6_input.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv6/ip6_input.c)), so a packet with more
/// counts as one of our tunnel.
const EXTENSIONS: usize = 6;

/// EtherTypes of tags (IEEE 802.1Q), network order.
const VLAN: u32 = 0x8100_u16.to_be() as u32;
const SERVICE_VLAN: u32 = 0x88a8_u16.to_be() as u32;

/// Ethernet and outer IP header.
#[repr(C)]
#[derive(Clone, Copy)]
struct Start<F> {
    ethernet: EthernetHeader,
    ip: F,
}

/// The same, and a UDP header without anything in between.
#[repr(C)]
#[derive(Clone, Copy)]
struct PlainUdp<F> {
    start: Start<F>,
    udp: [u8; UDP_LEN],
}

/// Returns the reason of the verdict on a packet that was found to be `found`.
#[inline(never)]
pub(crate) fn check<F: Family>(skb: &Skb, node: &Node, found: Reason) -> Reason {
    let family = node.family::<F>();
    let Some(Start { ip, .. }) = skb.load::<Start<F>>(0, LoadBuf::Outer) else {
        return Reason::NotTunnel;
    };
    let (found, udp) = match found {
        Reason::OuterUnusual | Reason::OuterFragment | Reason::NotForUs => {
            match find_udp(skb, family, ip, found) {
                Ok(found) => found,
                Err(reason) => return reason,
            }
        }
        // These were found behind outer headers that were as they should be.
        other => (other, ETH_LEN + size_of::<F>()),
    };
    let source = ip.source();
    // SAFETY: the entry is copied. An element that is replaced during the copy has another source's
    // entry, which is valid too.
    match unsafe { VTEPS.get(source) }.map(|vtep| vtep.index) {
        None if is_for_this_host(skb, family, ip) => {
            stranger::<F>(skb, node, source, udp + UDP_LEN + VXLAN_LEN)
        }
        Some(index) if matches!(found, Reason::InnerOtherSource) => {
            other_source::<F>(skb, node, source, index)
        }
        _ => found,
    }
}

/// The same for a packet behind a tag without a VLAN, which the kernel removes (`skb_vlan_untag()`,
/// called by `__netif_receive_skb_core()` in [net/core/dev.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/dev.c)).
#[inline(always)]
pub(crate) fn check_tagged<F: Family>(skb: &Skb, node: &Node) -> Reason {
    if node.family::<F>().has_tunnel() {
        check::<F>(skb, node, Reason::OuterUnusual)
    } else {
        Reason::NotTunnel
    }
}

/// The same for a packet with two tags without a VLAN. The kernel removes any number of them. No
/// device is known to send that, so what is behind them is not parsed: the reason is one of
/// `[audited, refused]`.
#[inline(always)]
pub(crate) fn check_double_tagged(skb: &Skb, [audited, refused]: [Reason; 2]) -> Reason {
    if skb.vlan_present() == 0 || !matches!(skb.protocol(), VLAN | SERVICE_VLAN) {
        return Reason::NotTunnel;
    }
    let Some(tag) = skb.load::<[u8; 2]>(ETH_LEN, LoadBuf::Extension) else {
        return Reason::NotTunnel;
    };
    match in_force().outer {
        _ if u32::from(u16::from_be_bytes(*tag)) & VLAN_ID != 0 => Reason::NotTunnel,
        GuardMode::Off => Reason::NotTunnel,
        GuardMode::Audit => audited,
        GuardMode::Enforce => refused,
    }
}

/// Checks a forwarded packet that leaves by the underlay. From a pod to a peer's tunnel port, with
/// our VNI, it would count as one of this node's: masquerade gives it the node's address.
#[inline(always)]
pub(crate) fn check_pod_to_peer<F: Family>(skb: &Skb, node: &Node) -> Reason {
    let Some(Start { ip, .. }) = skb.view::<Start<F>>(0) else {
        return Reason::NotTunnel;
    };
    check_pod(skb, node, ip, || {
        // SAFETY: the value is not read.
        unsafe { VTEPS.get(ip.destination()) }.is_some()
    })
}

/// Checks a packet that a pod sends. If it goes to the tunnel port of the pod's node, at any
/// address of the node, the vxlan device would deliver the inner frame as a peer's.
#[inline(never)]
pub(crate) fn check_pod_to_node<F: Family>(skb: &Skb, node: &Node) -> Reason {
    let family = node.family::<F>();
    if !family.has_tunnel() || is_to_other_port::<F>(skb, family) {
        return Reason::NotTunnel;
    }
    // By helper: the sender decides which part of a packet is linear.
    let Some(Start { ip, .. }) = skb.load::<Start<F>>(0, LoadBuf::Outer) else {
        return Reason::NotTunnel;
    };
    check_pod(skb, node, ip, || {
        skb.ends_here::<F>(ip.source(), ip.destination())
    })
}

/// Returns true if the packet plainly is not for the tunnel's port. Most packets are not, and a
/// comparison in place saves some 60 ns of loading their headers. False where the headers are not
/// linear, or other headers may be in between: then [`find_udp`] has to say.
#[inline(always)]
fn is_to_other_port<F: Family>(skb: &Skb, family: &FamilyConfig) -> bool {
    let Some(PlainUdp {
        start: Start { ip, .. },
        udp,
    }) = skb.view_linear::<PlainUdp<F>>(0)
    else {
        return false;
    };
    if ip.header_len() as usize != size_of::<F>() || F::is_extension(ip.protocol()) {
        return false;
    }
    ip.protocol() != PROTO_UDP || udp[2] != family.port[0] || udp[3] != family.port[1]
}

/// Checks a pod's packet, which reaches a tunnel device if `arrives` returns true.
#[inline(always)]
fn check_pod<F: Family>(skb: &Skb, node: &Node, ip: &F, arrives: impl FnOnce() -> bool) -> Reason {
    if ip.protocol() != PROTO_UDP && !F::is_extension(ip.protocol()) {
        return Reason::NotTunnel;
    }
    let family = node.family::<F>();
    let mode = in_force().outer;
    if matches!(mode, GuardMode::Off)
        || find_udp(skb, family, ip, Reason::NotTunnel).is_err()
        || !arrives()
    {
        return Reason::NotTunnel;
    }
    let enforced = matches!(mode, GuardMode::Enforce);
    let reason = if enforced {
        Reason::RefusedPodTunnel
    } else {
        Reason::PodTunnel
    };
    record_violation(mode, ip.source(), reason, enforced, node);
    reason
}

/// Returns true if the vxlan device will get the packet: its socket is bound to no address
/// (`vxlan_create_sock()` in [drivers/net/vxlan/vxlan_core.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/drivers/net/vxlan/vxlan_core.c)), so any
/// address of this host will do. A packet that this host forwards is not for it.
#[inline(always)]
fn is_for_this_host<F: Family>(skb: &Skb, family: &FamilyConfig, ip: &F) -> bool {
    same_addr(ip.destination(), family.vtep) || skb.ends_here::<F>(ip.source(), ip.destination())
}

/// Returns the offset of the UDP header of our tunnel in a packet with options, extension headers,
/// in a fragment, cut short, or for another address; and its reason if a peer sent it.
#[inline(always)]
fn find_udp<F: Family>(
    skb: &Skb,
    family: &FamilyConfig,
    ip: &F,
    found: Reason,
) -> Result<(Reason, usize), Reason> {
    if ip.is_later_fragment() {
        return Err(if matches!(found, Reason::OuterUnusual) {
            Reason::NotTunnel
        } else {
            found
        });
    }
    let (mut at, mut protocol) = (ETH_LEN + ip.header_len() as usize, ip.protocol());
    let mut is_fragment = ip.is_fragment();
    for _ in 0..EXTENSIONS {
        if !F::is_extension(protocol) {
            break;
        }
        let header: &ExtensionHeader = skb.load(at, LoadBuf::Extension).ok_or(Reason::NotTunnel)?;
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
    let udp: &[u8; UDP_LEN] = skb.load(at, LoadBuf::Transport).ok_or(Reason::NotTunnel)?;
    if udp[2] != family.port[0] || udp[3] != family.port[1] {
        return Err(Reason::NotTunnel);
    }
    // Too short for a tunnel packet: the device drops it, and it may be the answer to a packet that
    // was masqueraded to our port. Of a fragment the rest is still to come.
    match skb.load::<[u8; VXLAN_LEN]>(at + UDP_LEN, LoadBuf::Vxlan) {
        None if !is_fragment => Err(Reason::NotTunnel),
        Some(vxlan) if u32::from_be_bytes([0, vxlan[4], vxlan[5], vxlan[6]]) != family.vni => {
            Err(Reason::OtherVni)
        }
        _ if !same_addr(ip.destination(), family.vtep) => Ok((Reason::NotForUs, at)),
        _ if is_fragment => Ok((Reason::OuterFragment, at)),
        _ => Ok((found, at)),
    }
}

/// Returns the verdict on a packet whose outer source is not a peer; its inner frame starts at
/// offset `frame`.
#[inline(always)]
fn stranger<F: Family>(skb: &Skb, node: &Node, source: Addr, frame: usize) -> Reason {
    let mode = in_force().outer;
    let enforced = matches!(mode, GuardMode::Enforce) && !is_from_nat_vtep::<F>(skb, frame);
    let reason = if enforced {
        Reason::RefusedVtep
    } else {
        Reason::UnknownVtep
    };
    record_violation(mode, source, reason, enforced, node);
    reason
}

/// Returns true if the inner frame is of a peer behind NAT, whose packets may come from any
/// address.
#[inline(always)]
fn is_from_nat_vtep<F: Family>(skb: &Skb, frame: usize) -> bool {
    let Some(ethernet) = skb.load::<EthernetHeader>(frame, LoadBuf::Inner) else {
        return false;
    };
    is_nat_vtep::<F>(ethernet.source())
}

/// Returns true if the tunnel device with this MAC belongs to a peer behind NAT.
#[inline(always)]
pub(crate) fn is_nat_vtep<F: Family>(mac: Mac) -> bool {
    let key = DeviceKey {
        mac,
        family: F::ETHERTYPE,
    };
    // SAFETY: the value is not read.
    unsafe { NAT_VTEPS.get(key) }.is_some()
}

/// Returns the verdict on a packet of a known peer whose inner source is outside its subnet.
#[inline(always)]
fn other_source<F: Family>(skb: &Skb, node: &Node, source: Addr, index: u32) -> Reason {
    let family = node.family::<F>();
    let Some(inner) = skb.load::<F>(OuterHeaders::<F>::LEN, LoadBuf::Inner) else {
        return Reason::Malformed;
    };
    let entry = inner
        .source_subnet(family)
        .and_then(|subnet| F::peers().get(subnet));
    let owner = entry.map_or(Addr::NONE, |entry| entry.vtep);
    // The entry of a peer is invalid while it is rewritten, and stays so if the agent is killed
    // during that.
    if same_addr(owner, source) {
        return Reason::PeerChanging;
    }
    if index == VtepEntry::UNNUMBERED && same_addr(owner, Addr::NONE) {
        return Reason::SenderUnnumbered;
    }
    let mode = in_force().inner;
    let enforced = matches!(mode, GuardMode::Enforce);
    let reason = if enforced {
        Reason::RefusedSource
    } else {
        Reason::InnerOtherSource
    };
    record_violation(mode, source, reason, enforced, node);
    reason
}

#[inline(always)]
pub(crate) fn in_force() -> Checks<GuardMode> {
    GUARD
        .get(ONLY)
        .map_or_else(GuardWord::default, |word| *word)
        .in_force()
}

/// Records the source of the packet.
#[inline(always)]
pub(crate) fn record_violation(
    mode: GuardMode,
    source: Addr,
    reason: Reason,
    dropped: bool,
    node: &Node,
) {
    if matches!(mode, GuardMode::Off) {
        return;
    }
    match VIOLATIONS.get_ptr_mut(source) {
        Some(known) => {
            // SAFETY: the look-up gave an element of the map, which lives as long as it; other CPUs
            // may write it too, and what is lost then is a count.
            let known = unsafe { &mut *known };
            *known = known.with(reason, dropped, node.now);
        }
        // A full table loses only this count.
        None => drop(VIOLATIONS.insert(
            source,
            Violation::default().with(reason, dropped, node.now),
            0,
        )),
    }
}
