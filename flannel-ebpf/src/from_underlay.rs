//! Ingress of the external interface: says what each tunnel packet is. It takes none: the vxlan device receives them all.

use flannel_common::{
    addr::Addr,
    node::FamilyConfig,
    outer::{Outer, same4, same6},
    packet::OUTER_LEN,
    peer::subnet_index_v4,
    reason::Reason,
};

use crate::{maps::VTEPS, node::Node, skb::Skb};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Result<Reason, Reason> {
    let bytes = skb.outer_bytes()?;
    let node = Node::read()?;
    let family = node.v4();
    let outer = Outer::read(&bytes, family).ok_or(Reason::NotTunnel)?;
    outer_is_ours(outer, family)?;
    let sender = Addr::from_v4_bytes(outer.source());
    // SAFETY: the value is copied at once; an element freed meanwhile is not reused before the program ends (RCU).
    let vtep = *unsafe { VTEPS.get(sender) }.ok_or(Reason::UnknownVtep)?;
    inner_is_the_peers(skb, outer, family, vtep.index)
}

#[inline(always)]
fn outer_is_ours(outer: Outer<'_>, family: &FamilyConfig) -> Result<(), Reason> {
    if !same4(outer.destination(), family.vtep.v4_bytes()) {
        return Err(Reason::NotForUs);
    }
    if outer.is_fragment() {
        return Err(Reason::OuterFragment);
    }
    outer.vxlan(family)
}

#[inline(always)]
fn inner_is_the_peers(skb: &Skb, outer: Outer<'_>, family: &FamilyConfig, index: u32) -> Result<Reason, Reason> {
    if !same6(outer.inner_destination_mac(), family.vtep_mac) {
        return Err(Reason::InnerOtherMac);
    }
    if !outer.inner_is_ipv4() {
        return Err(Reason::OtherProtocol);
    }
    let inner: [u8; 20] = skb.load(OUTER_LEN).ok_or(Reason::Malformed)?;
    let source = [inner[12], inner[13], inner[14], inner[15]];
    match subnet_index_v4(family, source) {
        Some(found) if found == index => Ok(Reason::TunnelGood),
        _ => Err(Reason::InnerOtherSource),
    }
}
