//! Egress of the external interface: observes the kernel's own tunnel packets, so that `to_tunnel` encapsulates only
//! where its packets would leave the same way.
//!
//! A packet of ours skips the host's OUTPUT and POSTROUTING chains, its IPsec policies and its policy routing.
//! Every two seconds per peer one packet therefore goes through the vxlan device; if it arrives here, whole, by
//! the same device and with the headers we would have given it, nothing on that stretch changes or stops our
//! packets either. If it does not arrive, nothing vouches for the path and all packets take the kernel's.

use flannel_common::{
    node::FamilyConfig,
    outer::Outer,
    packet::{OUTER_LEN, OVERHEAD_V4},
    peer::{PATH_SEEN_NS, PathSeen, subnet_index_v4},
    program::OWN_PACKET,
    reason::Reason,
};

use crate::{
    node::{Node, Peer},
    segment::segment_len,
    skb::Skb,
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Result<Reason, Reason> {
    if skb.tc_index() == OWN_PACKET {
        skb.set_tc_index(0);
        return Ok(Reason::OwnPacket);
    }
    let bytes = skb.outer_bytes()?;
    let node = Node::read()?;
    let family = node.v4();
    let outer = Outer::read(&bytes, family).ok_or(Reason::NotTunnel)?;
    observe(skb, outer, family, &node)
}

#[inline(always)]
fn observe(skb: &Skb, outer: Outer<'_>, family: &FamilyConfig, node: &Node) -> Result<Reason, Reason> {
    if outer.is_later_fragment() {
        return Err(Reason::OuterFragment);
    }
    outer.vxlan(family)?;
    if !outer.inner_is_ipv4() {
        return Err(Reason::OtherProtocol);
    }
    let inner: [u8; 20] = skb.load(OUTER_LEN).ok_or(Reason::Malformed)?;
    let destination = [inner[16], inner[17], inner[18], inner[19]];
    let peer = Peer::find(subnet_index_v4(family, destination).ok_or(Reason::NoPeer)?)?;
    if outer.is_fragment() {
        hold(&peer, node.now);
        return Err(Reason::PathFragmented);
    }
    if peer.entry().oif != skb.ifindex() || !outer.equals_recipe(family, peer.entry(), inner[1]) {
        hold(&peer, node.now);
        return Err(Reason::PathDiffers);
    }
    let len = segment_len(skb, skb.len() - OVERHEAD_V4 as u32, OUTER_LEN, inner[0], inner[9])?;
    if !peer.unchanged() || !node.unchanged() {
        return Err(Reason::PeerChanging);
    }
    vouch(&peer, node.now, len)
}

/// Nothing vouches for the path for one interval.
#[inline(always)]
fn hold(peer: &Peer, now: u64) {
    peer.write_seen(PathSeen { word: peer.word(), until_ns: 0, hold_ns: now + PATH_SEEN_NS, ..peer.entry().seen });
}

/// Vouches for the path: for one interval, for packets up to the largest seen in it.
#[inline(always)]
fn vouch(peer: &Peer, now: u64, len: u32) -> Result<Reason, Reason> {
    let seen = peer.entry().seen;
    if seen.word.0 == peer.word().0 && now < seen.hold_ns {
        return Err(Reason::PathHeld);
    }
    if !peer.entry().path_vouches(now) {
        peer.write_seen(PathSeen { word: peer.word(), until_ns: now + PATH_SEEN_NS, hold_ns: 0, max_len: len, ..seen });
    } else if len > seen.max_len {
        peer.write_seen(PathSeen { max_len: len, ..seen });
    }
    Ok(Reason::PathSeen)
}
