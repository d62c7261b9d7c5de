//! Learning a flow: a recorded packet reached an exit hook, so what the kernel did to it applies to
//! the next packets of its flow.

use core::ptr::read_volatile;

use aya_ebpf::helpers::generated::bpf_get_prandom_u32;
use flannel_common::{
    abi::{
        reason::Reason,
        tick::{Tick, jittered},
    },
    flow::{Egress, Flow, FlowAction},
    flow::{expiry::Expiry, flow_key::FlowKey, pending::PendingPacket},
    packet::PROTO_TCP,
    packet::inner::{FrameAddresses, ParsedPacket},
};

use super::{
    close_guard, conntrack, hint, probation,
    scratch::{self, FlowMaps, Scratch},
    softirq,
    table::{self, FlowRef},
    window_check,
};
use crate::{
    node::{self, Node},
    packet::skb::Skb,
};

/// State of a recorded packet at the exit hook.
pub(crate) struct EgressState {
    pub(crate) generation: u32,
    pub(crate) egress: Egress,
    pub(crate) mtu: u32,
    pub(crate) mark: u32,
    pub(crate) priority: u32,
    pub(crate) egress_data: u32,
    pub(crate) flow_label: u32,
    pub(crate) addresses: FrameAddresses,
    pub(crate) takes_merged: bool,
}

/// Ends the reverse flow of a TCP packet with SYN, FIN or RST at an exit hook. Of these packets
/// only a recorded SYN-ACK may be learned from.
#[inline(always)]
pub(crate) fn close_if_control<F: FlowMaps>(
    scratch: &mut Scratch<F>,
    is_recorded: bool,
    node: &Node,
) -> Result<(), Reason> {
    let Scratch {
        packet,
        keys: [key, reverse_key],
        ..
    } = scratch;
    if packet.is_control {
        *key = packet.key.reversed();
        table::end::<F>(key, packet.is_opening, node, reverse_key);
        if !(is_recorded && packet.is_answer()) {
            return Err(Reason::TcpControl);
        }
    }
    Ok(())
}

/// Learns a flow from a recorded packet that left as the parsed one.
#[inline(always)]
pub(crate) fn learn<F: FlowMaps>(
    skb: &Skb,
    node: &Node,
    pending: &PendingPacket<F::Address>,
    scratch: &mut Scratch<F>,
    state: &EgressState,
) -> Result<Reason, Reason> {
    let action = &mut scratch.flow.action;
    *action = FlowAction {
        out: scratch.packet.key,
        generation: state.generation,
        mark: state.mark,
        priority: state.priority,
        egress_data: state.egress_data,
        flow_label: state.flow_label,
        entry: pending.addresses.copied(),
        exit: state.addresses.copied(),
        mtu: state.mtu as u16,
        egress: state.egress,
        ttl_step: 0,
        needs_mirror: 1,
        takes_merged: u8::from(state.takes_merged),
        tos: pending.fingerprint.tos,
        ttl: pending.fingerprint.ttl,
    };
    scratch.flow.arrival = pending.arrival;
    scratch::forget(scratch);
    let Scratch { packet, flow, .. } = scratch;
    flow.action.ttl_step = pending.became(packet)?;
    let tracked = conntrack::is_tracked::<F>(skb, pending, packet)?;
    let is_tcp = packet.key.protocol == u32::from(PROTO_TCP);
    flow.action.needs_mirror = u8::from(is_tcp || !tracked);
    if is_tcp {
        let noted = window_check::note::<F>(skb, pending, packet, node.tick(), &mut flow.window);
        if !matches!(noted, Reason::Learned) {
            return Err(noted);
        }
    }
    let is_confirmed = softirq::is_proven(&mut flow.packets);
    scratch::forget(scratch);
    write::<F>(&pending.key, scratch, node, is_confirmed)
}

/// The place for a flow that was learned.
#[derive(Clone, Copy)]
enum Place {
    /// It was there, and is extended.
    Extended,
    /// A slot of flows on probation.
    Probation,
    /// The same, and the reverse flow is expected.
    ProbationOfBoth,
    /// The table.
    Table,
    /// The table. It was on probation until its refresh, so it is long enough.
    Promoted,
}

/// Writes the flow, confirmed if no process can have held its packet; and in it and its reverse
/// flow, until when each may rely on the other.
#[inline(always)]
fn write<F: FlowMaps>(
    key: &FlowKey<F::Address>,
    scratch: &mut Scratch<F>,
    node: &Node,
    is_confirmed: bool,
) -> Result<Reason, Reason> {
    let Scratch {
        packet,
        flow,
        keys: [reverse_key, spare],
        ..
    } = scratch;
    let now = node.tick();
    *reverse_key = flow.action.mirror_key();
    let Ok(reverse) = find_reverse::<F>(key, reverse_key, flow, now) else {
        return Err(forget_both::<F>(key, reverse_key, now));
    };
    // SAFETY: the helper takes nothing and returns a number.
    let until = jittered(now, node::fast()?.interval, unsafe {
        bpf_get_prandom_u32()
    });
    let reverse_until = (reverse.0 != Expiry::NONE.0).then_some(reverse.moment());
    flow.begin_counts(now);
    let place = extend::<F>(key, flow, now, packet, until, reverse_until)?;
    scratch::forget(flow);
    if !matches!(place, Place::Extended) {
        flow.stamp(flow.action.check(key), now, until, reverse_until);
        if is_confirmed {
            flow.confirm();
        }
        put::<F>(key, flow, now, place)?;
        if key.protocol == u32::from(PROTO_TCP) {
            close_guard::note_entrance::<F>(key, spare);
        }
        let is_outside = flow.action.egress.0 == Egress::OUTSIDE.0;
        if (is_outside || matches!(place, Place::ProbationOfBoth)) && reverse_until.is_none() {
            expect::<F>(reverse_key, key, flow, now);
        }
    }
    if reverse_until.is_some() {
        table::set_reverse::<F>(reverse_key, reverse.moved(until), now);
    }
    Ok(Reason::Learned)
}

/// Returns until when the reverse flow is usable, in the form it has there; [`Expiry::NONE`] if it
/// is not. Fails if the two are not of one connection.
#[inline(always)]
fn find_reverse<F: FlowMaps>(
    key: &FlowKey<F::Address>,
    reverse_key: &FlowKey<F::Address>,
    flow: &mut Flow<F::Address>,
    now: Tick,
) -> Result<Expiry, Reason> {
    flow.mirror = match FlowRef::find::<F>(reverse_key, now) {
        Some(reverse) if reverse.is_current(flow.action.generation, now) => {
            if !FlowAction::is_mirrored_by(key, &reverse.value.action) {
                return Err(Reason::MirrorDiffers);
            }
            reverse.value.seen
        }
        _ => Expiry::NONE,
    };
    // SAFETY: a reference is valid for reads. Volatile: for the verifier the number read from
    // memory is any, and all ways to here are one.
    Ok(unsafe { read_volatile(&raw const flow.mirror) })
}

/// Ends two flows that are not of one connection: neither is trusted.
#[inline(always)]
fn forget_both<F: FlowMaps>(
    key: &FlowKey<F::Address>,
    reverse_key: &FlowKey<F::Address>,
    now: Tick,
) -> Reason {
    if let Some(found) = FlowRef::find::<F>(key, now) {
        if found.is_closed(now) {
            return Reason::FlowClosed;
        }
        found.forget();
    }
    if let Some(reverse) = FlowRef::find::<F>(reverse_key, now) {
        reverse.forget();
    }
    Reason::MirrorDiffers
}

/// Extends the flow with this key, if it is the one that was learned. Returns the place for it.
#[inline(always)]
fn extend<F: FlowMaps>(
    key: &FlowKey<F::Address>,
    flow: &mut Flow<F::Address>,
    now: Tick,
    packet: &ParsedPacket<F::Address>,
    until: Tick,
    reverse_until: Option<Tick>,
) -> Result<Place, Reason> {
    let is_answer = packet.is_answer();
    let Some(found) = FlowRef::find::<F>(key, now) else {
        return Ok(match is_answer {
            true => Place::ProbationOfBoth,
            false if packet.is_udp() => Place::Probation,
            false => Place::Table,
        });
    };
    if found.is_closed(now) {
        return Err(Reason::FlowClosed);
    }
    // A new connection at the ends of an earlier one begins as any other. A datagram was expected
    // because another one had been answered.
    if is_answer || packet.is_udp() && found.value.is_expected() {
        return Ok(Place::ProbationOfBoth);
    }
    found.hand_counts_to(flow);
    if found.is_promoted(flow.action.generation, now) {
        return Ok(Place::Promoted);
    }
    if found.value.action.same(&flow.action) {
        found.extend(until, reverse_until, flow);
        hint::note_in_table::<F>(key.hash(), now);
        return Ok(Place::Extended);
    }
    Ok(if found.value.is_on_probation() {
        Place::Probation
    } else {
        Place::Table
    })
}

/// Puts a flow into its place. A datagram flow without a free slot goes to the table, for which its
/// sender has paid.
#[inline(always)]
fn put<F: FlowMaps>(
    key: &FlowKey<F::Address>,
    flow: &mut Flow<F::Address>,
    now: Tick,
    place: Place,
) -> Result<(), Reason> {
    if matches!(place, Place::Probation | Place::ProbationOfBoth) {
        flow.put_on_probation();
        if probation::write::<F>(key, flow, now) {
            return Ok(());
        }
        if key.protocol == u32::from(PROTO_TCP) {
            return Err(Reason::TableRefused);
        }
        flow.take_off_probation();
    }
    let flow: &Flow<_> = flow;
    table::insert::<F>(key, flow, now)?;
    if matches!(place, Place::Promoted) {
        probation::release::<F>(key);
    }
    Ok(())
}

/// Notes the flow with this key as expected: its next packet is recorded. The flow with the key
/// `reverse` is its way back. It is composed in `flow`.
#[inline(always)]
fn expect<F: FlowMaps>(
    key: &FlowKey<F::Address>,
    reverse: &FlowKey<F::Address>,
    flow: &mut Flow<F::Address>,
    now: Tick,
) {
    (flow.action.out, flow.action.egress) = (reverse.reversed(), Egress::NONE);
    flow.seen = Expiry::NONE;
    // Else both are set by a loop over their bytes.
    scratch::forget(flow);
    flow.mirror = Expiry::NONE;
    flow.window.is_learned = 0;
    flow.packets = 0;
    flow.put_on_probation();
    probation::write::<F>(key, flow, now);
}

/// Expects the direction that is not known yet of two by which datagrams are exchanged: the reply
/// at an exit hook was not recorded. The first two datagrams of an exchange cost a look-up; from
/// the third on both directions are learned. Not inlined: the stack of one program (512 bytes) is
/// too small.
#[inline(never)]
pub(crate) fn expect_after_reply<F: FlowMaps>(skb: &Skb, node: &Node, scratch: &mut Scratch<F>) {
    if !conntrack::is_reply(skb) {
        return;
    }
    let now = node.tick();
    let Scratch {
        packet,
        flow,
        keys: [key, reverse_key],
        ..
    } = scratch;
    *key = packet.key.reversed();
    let expected: &FlowKey<_> = match FlowRef::find::<F>(key, now) {
        None => key,
        Some(found) if found.value.is_expected() => return,
        Some(found) => {
            *reverse_key = found.value.action.mirror_key();
            reverse_key
        }
    };
    scratch::forget(expected);
    if FlowRef::find::<F>(expected, now).is_none() {
        // Of the two no more than this is known: where NAT stands between them, the other's key is
        // known once a packet of it was learned.
        expect::<F>(expected, expected, flow, now);
    }
}
