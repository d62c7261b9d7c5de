//! Ingress of the external interface: says what each tunnel packet is. It takes none: the vxlan device receives them all,
//! which is also where a UDP checksum is checked, or that there is none.

use flannel_common::{
    ethernet::same_mac,
    ip::{Ipv4Header, Ipv6Header},
    node::FamilyConfig,
    outer::OuterHeaders,
    reason::Reason,
};

use crate::{
    family::Family,
    maps::VTEPS,
    node::Node,
    skb::{Room, Skb},
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Result<Reason, Reason> {
    if skb.vlan_present() != 0 {
        return Err(Reason::VlanTagged);
    }
    let node = Node::read()?;
    match skb.protocol() {
        Ipv4Header::PROTOCOL => judge::<Ipv4Header>(skb, &node),
        Ipv6Header::PROTOCOL => judge::<Ipv6Header>(skb, &node),
        _ => Err(Reason::NotTunnel),
    }
}

#[inline(always)]
fn judge<F: Family>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let family = node.family::<F>();
    let mut room = Room::<OuterHeaders<F>>::new();
    let outer = skb.load(0, &mut room).ok_or(Reason::NotTunnel)?;
    if outer.ip().has_fragment_header() {
        return judge_fragment(skb, outer, family);
    }
    outer_is_ours(outer, family)?;
    // SAFETY: the value is copied at once; an element freed meanwhile is not reused before the program ends (RCU).
    let vtep = *unsafe { VTEPS.get(outer.source()) }.ok_or(Reason::UnknownVtep)?;
    inner_is_the_peers(skb, outer, family, vtep.index)
}

/// A packet with an IPv6 fragment header.
#[inline(always)]
fn judge_fragment<F: Family>(skb: &Skb, outer: &OuterHeaders<F>, family: &FamilyConfig) -> Result<Reason, Reason> {
    skb.behind_fragment_header::<F>(family, &mut Room::new())?;
    Err(if outer.is_for_us(family) { Reason::OuterFragment } else { Reason::NotForUs })
}

#[inline(always)]
fn outer_is_ours<F: Family>(outer: &OuterHeaders<F>, family: &FamilyConfig) -> Result<(), Reason> {
    if !outer.is_tunnel(family) {
        return Err(Reason::NotTunnel);
    }
    if !outer.is_for_us(family) {
        return Err(Reason::NotForUs);
    }
    if outer.ip().is_fragment() {
        return Err(Reason::OuterFragment);
    }
    outer.tunnel().vxlan(family)
}

#[inline(always)]
fn inner_is_the_peers<F: Family>(
    skb: &Skb,
    outer: &OuterHeaders<F>,
    family: &FamilyConfig,
    index: u32,
) -> Result<Reason, Reason> {
    if !same_mac(outer.tunnel().inner().destination(), family.vtep_mac) {
        return Err(Reason::InnerOtherMac);
    }
    if !outer.tunnel().inner().carries(F::ETHERTYPE) {
        return Err(Reason::OtherProtocol);
    }
    let mut room = Room::<F>::new();
    let inner = skb.load(OuterHeaders::<F>::LEN, &mut room).ok_or(Reason::Malformed)?;
    match inner.source_subnet(family) {
        Some(found) if found == index => Ok(Reason::TunnelGood),
        _ => Err(Reason::InnerOtherSource),
    }
}
