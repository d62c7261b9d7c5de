//! Pending packets: recorded at an entry hook, taken at an exit hook (see
//! `flannel_common::flow::pending`).

use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_get_smp_processor_id};
use flannel_common::{
    abi::{
        fast::{FastConfig, port_bit},
        maps::ONLY,
        reason::Reason,
    },
    flow::Flow,
    flow::{
        connection::RECORDED_FROM,
        flow_key::Address,
        pending::{CpuRun, CpuState, PendingPacket, Slot, task_word},
    },
    packet::inner::ParsedPacket,
};

use super::{scratch::FlowMaps, table};
use crate::{
    maps::{CPU_STATE, HELPER_PORTS, LEARN_BUCKETS},
    node::{self, Node},
    packet::skb::Skb,
};

/// One in this many packets of unknown flows is recorded, so that a short connection rarely pays
/// for a flow that it never uses.
const ONE_IN: u32 = 8;

/// Headroom that a tunnel device of either family asks for, in bytes, and some more.
const ROOM: i32 = 128;

/// Removes the `tc_index` of a packet at an entry hook: one set in another network namespace names
/// no record here.
#[inline(always)]
pub(crate) fn clear(skb: &Skb) {
    if skb.tc_index() != 0 {
        skb.set_tc_index(0);
    }
}

/// Decides whether a packet of an unknown flow is recorded. Called before any work that only a
/// record needs. The numbers (xorshift) follow no pattern of packets; the kernel's would cost a
/// helper call for each packet.
#[inline(always)]
pub(crate) const fn sample(random: &mut u32) -> Result<(), Reason> {
    let mut number = if *random == 0 { ONE_IN } else { *random };
    number ^= number << 13;
    number ^= number >> 17;
    number ^= number << 5;
    *random = number;
    if number.is_multiple_of(ONE_IN) {
        Ok(())
    } else {
        Err(Reason::FlowUnknown)
    }
}

/// Records a sampled packet of an unknown flow, unless its sender creates flows too fast.
#[inline(always)]
pub(crate) fn record_new<F: FlowMaps>(
    skb: &Skb,
    node: &Node,
    packet: &ParsedPacket<F::Address>,
    bucket: u32,
) -> Result<Reason, Reason> {
    let bucket = LEARN_BUCKETS
        .get_ptr_mut(bucket)
        .ok_or(Reason::TooManyFlows)?;
    // SAFETY: the look-up gave an element of the array, which lives as long as the map. CPUs may
    // race for a token.
    let left = unsafe { *bucket }
        .take(node.tick())
        .ok_or(Reason::TooManyFlows)?;
    record::<F>(skb, node, packet)?;
    // SAFETY: as above.
    unsafe { *bucket = left };
    Ok(Reason::Sampled)
}

/// Records a packet of a flow that may not be used for this reason, if that is a refresh or a
/// handshake. A flow on probation that is refreshed will take a place in the table, for which its
/// sender pays.
#[inline(always)]
pub(crate) fn record_again<F: FlowMaps>(
    skb: &Skb,
    node: &Node,
    packet: &ParsedPacket<F::Address>,
    flow: &Flow<F::Address>,
    reason: Reason,
    bucket: u32,
) -> Result<Reason, Reason> {
    match reason {
        Reason::Refreshing if flow.is_on_probation() => {
            record_new::<F>(skb, node, packet, bucket)?;
        }
        Reason::Handshake if is_too_early::<F>(packet, node)? => return Err(Reason::TooFewPackets),
        Reason::Refreshing | Reason::Handshake => record::<F>(skb, node, packet)?,
        _ => {}
    }
    Err(reason)
}

/// Counts a packet of an expected flow. Returns true for the first ones of a connection whose
/// windows conntrack checks: they would be recorded in vain.
#[inline(always)]
fn is_too_early<F: FlowMaps>(
    packet: &ParsedPacket<F::Address>,
    node: &Node,
) -> Result<bool, Reason> {
    if packet.is_udp() || node::fast()?.has(FastConfig::TCP_LIBERAL) {
        return Ok(false);
    }
    Ok(table::count_expected::<F>(packet, node.tick()) < RECORDED_FROM)
}

/// Records the SYN-ACK of a connection. It costs no token, because it evicts no flow.
#[inline(always)]
pub(crate) fn record_answer<F: FlowMaps>(
    skb: &Skb,
    node: &Node,
    packet: &ParsedPacket<F::Address>,
) -> Result<Reason, Reason> {
    record::<F>(skb, node, packet).or(Err(Reason::TcpControl))?;
    Ok(Reason::Handshake)
}

/// Records a packet of a usable flow that arrived otherwise than the flow was learned.
#[inline(always)]
pub(crate) fn record_otherwise<F: FlowMaps>(
    skb: &Skb,
    node: &Node,
    packet: &ParsedPacket<F::Address>,
) -> Result<Reason, Reason> {
    record::<F>(skb, node, packet)?;
    Err(Reason::Refreshing)
}

#[inline(always)]
fn record<F: FlowMaps>(
    skb: &Skb,
    node: &Node,
    packet: &ParsedPacket<F::Address>,
) -> Result<(), Reason> {
    if !node::fast()?.learns(packet.key.protocol) || has_helper(packet) {
        return Err(Reason::NotLearned);
    }
    if F::IS_COPIED_FOR_ROOM && packet.is_udp() {
        skb.reserve(ROOM)?;
    }
    let state = cpu_state().ok_or(Reason::CpuLimit)?;
    let slot = Slot::of(cpu(), state.sequence).ok_or(Reason::CpuLimit)?;
    state.sequence = state.sequence.wrapping_add(1);
    let at = F::pending()
        .get_ptr_mut(slot.index())
        .ok_or(Reason::CpuLimit)?;
    let mut pending = PendingPacket::new(skb.raw() as u64, node.tick(), run(state), packet);
    pending.arrival = state.arrival;
    // SAFETY: the look-up gave an element of the array; only this CPU writes the slots of its ring.
    unsafe { *at = pending };
    skb.set_tc_index(slot.tc_index());
    Ok(())
}

/// Returns true if conntrack may have a helper that reads and rewrites the payload.
#[inline(always)]
fn has_helper<A: Address>(packet: &ParsedPacket<A>) -> bool {
    let [source, destination] = packet.key.port_numbers();
    is_helper_port(source) || is_helper_port(destination)
}

#[inline(always)]
fn is_helper_port(port: u16) -> bool {
    let (word, bit) = port_bit(port);
    HELPER_PORTS.get(word).is_some_and(|bits| bits & bit != 0)
}

/// Takes the record that a packet refers to, if it is of this packet.
#[inline(always)]
pub(crate) fn take<F: FlowMaps>(
    skb: &Skb,
    node: &Node,
) -> Result<&'static PendingPacket<F::Address>, Reason> {
    let tc_index = skb.tc_index();
    if !Slot::is_named_by(tc_index) {
        return Err(Reason::NotFollowed);
    }
    skb.set_tc_index(0);
    let slot = Slot::named_by(tc_index, cpu()).ok_or(Reason::RecordStale)?;
    let at = F::pending()
        .get_ptr_mut(slot.index())
        .ok_or(Reason::RecordStale)?;
    // SAFETY: as in `record`.
    let pending = unsafe { &mut *at };
    if pending.skb != skb.raw() as u64 {
        return Err(Reason::RecordStale);
    }
    pending.skb = 0;
    let run = run(cpu_state().ok_or(Reason::RecordStale)?);
    if pending.is_of_run(run, node.tick()) {
        Ok(pending)
    } else {
        Err(Reason::RecordStale)
    }
}

/// Counts a NAPI poll or softirq that ended on this CPU.
#[inline(always)]
pub(crate) fn count_poll() {
    if let Some(state) = cpu_state() {
        state.polls = state.polls.wrapping_add(1);
    }
}

#[inline(always)]
pub(super) fn cpu_state() -> Option<&'static mut CpuState> {
    let at = CPU_STATE.get_ptr_mut(ONLY)?;
    // SAFETY: the look-up gave this CPU's own element. Programs of one CPU at TC hooks and behind a
    // poll do not interrupt each other: bottom halves are off.
    Some(unsafe { &mut *at })
}

#[inline(always)]
fn run(state: &CpuState) -> CpuRun {
    // SAFETY: the helper takes nothing and returns an address, which is compared and never read.
    let task = unsafe { bpf_get_current_task() };
    CpuRun {
        polls: state.polls,
        task: task_word(task),
    }
}

#[inline(always)]
pub(super) fn cpu() -> u32 {
    // SAFETY: the helper takes nothing and returns a number.
    unsafe { bpf_get_smp_processor_id() }
}
