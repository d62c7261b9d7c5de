//! Packets that close a TCP connection: which of them neither end can have sent (see
//! `flannel_common::flow::window`). Conntrack takes any of them for genuine, because it no longer
//! checks the windows of these connections.

use flannel_common::{
    abi::{reason::Reason, tick::Tick},
    flow::{expiry::Expiry, flow_key::FlowKey},
    packet::inner::ParsedPacket,
};

use super::{
    scratch::{self, FlowMaps, Scratch},
    table::FlowRef,
};
use crate::node::{Node, mode_word};

/// Judges a control packet of TCP, which is in the scratch memory: a FIN or RST of a known
/// connection that neither end can have sent is refused. To be called from the function of a
/// program itself: the stack of several calls (512 bytes) is too small.
#[inline(never)]
pub(crate) fn judge<F: FlowMaps>(node: &Node) -> Reason {
    let Ok(scratch) = scratch::get::<F>() else {
        return Reason::TcpControl;
    };
    let Scratch { packet, keys, .. } = scratch;
    if !packet.is_opening && is_forged::<F>(packet, keys, node.tick()) {
        Reason::ForgedClose
    } else {
        Reason::TcpControl
    }
}

/// The reverse flow says what the sender of a packet may send.
#[inline(always)]
fn is_forged<F: FlowMaps>(
    packet: &ParsedPacket<F::Address>,
    keys: &mut [FlowKey<F::Address>; 2],
    now: Tick,
) -> bool {
    let [entrance, reverse_key] = keys;
    if !find_reverse_key::<F>(&packet.key, entrance, reverse_key, now) {
        return false;
    }
    FlowRef::find::<F>(reverse_key, now).is_some_and(|reverse| {
        let (seen, window) = (reverse.value.seen, reverse.value.window);
        let is_learned = seen.0 != Expiry::NONE.0 && window.is_learned != 0;
        let is_watched = is_learned && window.epoch == mode_word().epoch();
        is_watched && !window.reaches(packet.fingerprint.sequence)
    })
}

/// Finds the key of the reverse flow of the flow with this key. Another sender than that of the
/// flow has its addresses and ports as well, and another device.
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a key passed by value is copied to the stack"
)]
#[inline(always)]
fn find_reverse_key<F: FlowMaps>(
    key: &FlowKey<F::Address>,
    entrance: &mut FlowKey<F::Address>,
    reverse_key: &mut FlowKey<F::Address>,
    now: Tick,
) -> bool {
    if let Some(flow) = FlowRef::find::<F>(key, now) {
        *reverse_key = flow.value.action.mirror_key();
        return true;
    }
    *entrance = FlowKey { device: 0, ..*key };
    // SAFETY: the value is copied at once; an element freed since is not reused before the
    // program ends (RCU), or is given to another key, whose flow is then not found.
    let Some(device) = (unsafe { F::entrances().get(&*entrance) }).copied() else {
        return false;
    };
    entrance.device = device;
    let Some(flow) = FlowRef::find::<F>(entrance, now) else {
        return false;
    };
    *reverse_key = flow.value.action.mirror_key();
    true
}

/// Notes by which device the packets of a TCP flow enter.
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a key passed by value is copied to the stack"
)]
#[inline(always)]
pub(super) fn note_entrance<F: FlowMaps>(
    key: &FlowKey<F::Address>,
    scratch: &mut FlowKey<F::Address>,
) {
    *scratch = FlowKey { device: 0, ..*key };
    // Without it a packet that enters elsewhere is left to conntrack.
    let _ = F::entrances().insert(&*scratch, &key.device, 0);
}
