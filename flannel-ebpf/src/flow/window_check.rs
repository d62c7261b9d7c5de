//! Only TCP connections whose windows conntrack does not check are learned. Others are announced to
//! the agent, which ends that (see `flannel_common::flow::connection`).

use flannel_common::{
    abi::{fast::FastConfig, reason::Reason, tick::Tick},
    flow::{
        connection::{Connection, is_announced, weight},
        flow_key::{Address as _, FlowKey},
        pending::PendingPacket,
        window::{SCALE_MAX, Window},
    },
    packet::inner::ParsedPacket,
};

use super::{
    conntrack::{self, TcpState, WindowCheck},
    scratch::{self, FlowMaps},
    table::FlowRef,
};
use crate::{
    maps::CONNECTIONS,
    node::{self, mode_word},
    packet::skb::Skb,
};

/// Writes the numbers of a TCP packet at an exit hook to `window`, if its connection may be
/// learned: then it is [`Reason::Learned`]. A SYN-ACK always may: its flow is not used before its
/// reverse flow is learned. A call, because every exit hook would have a copy of it.
#[inline(never)]
pub(super) fn note<F: FlowMaps>(
    skb: &Skb,
    pending: &PendingPacket<F::Address>,
    packet: &ParsedPacket<F::Address>,
    now: Tick,
    window: &mut Window,
) -> Reason {
    match window_of::<F>(skb, pending, packet, now) {
        Ok(numbers) => {
            *window = numbers;
            Reason::Learned
        }
        Err(reason) => reason,
    }
}

#[inline(always)]
fn window_of<F: FlowMaps>(
    skb: &Skb,
    pending: &PendingPacket<F::Address>,
    packet: &ParsedPacket<F::Address>,
    now: Tick,
) -> Result<Window, Reason> {
    let is_liberal_host = node::fast()?.has(FastConfig::TCP_LIBERAL);
    let scale = match conntrack::window_check(skb, packet.fingerprint.sequence) {
        WindowCheck::Absent => SCALE_MAX,
        WindowCheck::Unknown if is_liberal_host => SCALE_MAX,
        WindowCheck::Unknown => return Err(Reason::WindowChecked),
        WindowCheck::Known(TcpState {
            scale,
            is_liberal,
            is_behind,
        }) => {
            if !is_liberal && !is_liberal_host && !packet.is_answer() {
                announce_in_time::<F>(&pending.key, packet, now);
                return Err(Reason::WindowChecked);
            }
            if is_liberal && is_behind {
                announce::<F>(&pending.key);
            }
            scale
        }
    };
    Ok(Window::of(packet, scale, mode_word().epoch()))
}

/// Announces a connection with the first packet that is recorded of its expected flow, and with few
/// of the next; one whose handshake was not seen with each that is sampled.
#[inline(always)]
fn announce_in_time<F: FlowMaps>(
    key: &FlowKey<F::Address>,
    packet: &ParsedPacket<F::Address>,
    now: Tick,
) {
    let is_due = match FlowRef::find::<F>(key, now) {
        Some(flow) if flow.value.is_expected() => is_announced(flow.value.used(), weight(packet)),
        _ => true,
    };
    if is_due {
        announce::<F>(key);
    }
}

/// A full buffer is not an error: the flow is announced again. It is written in the buffer, because
/// the stack is too small for a copy.
#[inline(always)]
fn announce<F: FlowMaps>(key: &FlowKey<F::Address>) {
    let key = scratch::read_again(key);
    let Some(mut reserved) = CONNECTIONS.reserve::<Connection>(0) else {
        return;
    };
    // SAFETY: the memory is the buffer's, and any bytes are valid for the type.
    let connection = unsafe { reserved.assume_init_mut() };
    connection.source = key.source.addr();
    connection.destination = key.destination.addr();
    connection.ports = key.ports;
    reserved.submit(0);
}
