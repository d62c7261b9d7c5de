//! From a message of `NFNLGRP_NFTRACE` to an event. Pure.
//!
//! The kernel sends one for each rule that matches a traced packet, for the implicit end of a chain
//! and for the policy of a base chain (`nft_trace_notify()` in [net/netfilter/nf_tables_trace.c,
//! Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netfilter/nf_tables_trace.c)).

use flannel_netlink::datagram::messages;
use netlink_packet_core::NetlinkBuffer;

use super::{fingerprint::HeaderFingerprint, flow::TraceDirection, table::OwnChain};
use crate::{
    NftablesTable,
    nfnetlink::FAMILY_HEADER,
    nftables::{Attributes, SUBSYSTEM},
};

/// `NFT_MSG_TRACE`.
const TRACE: u16 = SUBSYSTEM + 17;
// `NFTA_TRACE_*`.
const TABLE: u16 = 1;
const CHAIN: u16 = 2;
const RULE_HANDLE: u16 = 3;
const TYPE: u16 = 4;
const VERDICT: u16 = 5;
const ID: u16 = 6;
const NETWORK_HEADER: u16 = 8;
const TRANSPORT_HEADER: u16 = 9;
const POLICY: u16 = 16;
/// `NFT_TRACETYPE_POLICY`, `NFT_TRACETYPE_RETURN` and `NFT_TRACETYPE_RULE`.
const TYPE_POLICY: u32 = 1;
const TYPE_RETURN: u32 = 2;
const TYPE_RULE: u32 = 3;

/// An event of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A step of a packet.
    Step {
        /// The number of the packet. The kernel makes it from the place of the packet in memory,
        /// its hash and the device by which it came in (`nft_trace_init()` in
        /// [net/netfilter/nf_tables_trace.c, Linux
        /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netfilter/nf_tables_trace.c)). So
        /// a packet has another number where a bridge hands it to IP, and a later packet may have
        /// the number of one whose way is over.
        packet: u32,
        /// The fields that show that two numbers are of one packet, at the first chain of each
        /// hook.
        fingerprint: Option<HeaderFingerprint>,
        /// The step.
        step: TraceStep,
    },
    /// Events were lost, because they came too fast.
    Lost,
}

/// A step of a packet on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceStep {
    /// The trace of a packet of this direction begins.
    Begun(TraceDirection),
    /// A rule, the end of a chain or a policy judged it.
    Judged(TraceJudgement),
    /// It has passed the rules of the last hook on its way.
    Passed,
}

/// The judgement of a chain on a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceJudgement {
    /// The table of the chain.
    pub table: NftablesTable,
    /// The chain.
    pub chain: String,
    /// The handle of the rule; none for the policy and for the implicit end of the chain.
    pub rule: Option<u64>,
    /// The verdict.
    pub verdict: TraceVerdict,
}

/// A verdict on a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceVerdict {
    /// The packet goes on with the next base chain.
    Accept,
    /// It is dropped, also by `reject`.
    Drop,
    /// The kernel has taken it, such as for a queue of another kind.
    Stolen,
    /// It waits for a program.
    Queue,
    /// It goes on with the next rule.
    Continue,
    /// It goes on in another chain, and comes back.
    Jump(String),
    /// It goes on in another chain.
    Goto(String),
    /// It goes back to the chain that jumped.
    Return,
    /// A verdict without a name here.
    Other(i32),
}

/// The events of a datagram of the group. `own` is the table that begins traces.
pub(super) fn decode(datagram: &[u8], own: &NftablesTable) -> Vec<TraceEvent> {
    let traces = messages(datagram)
        .flatten()
        .map(NetlinkBuffer::new)
        .filter(|message| message.message_type() == TRACE);
    traces
        .filter_map(|message| event(message.payload(), own))
        .collect()
}

fn event(payload: &[u8], own: &NftablesTable) -> Option<TraceEvent> {
    let (family, attributes) = (
        *payload.first()?,
        Attributes::new(payload.get(FAMILY_HEADER..)?),
    );
    let packet = attributes.number32(ID)?;
    let table = NftablesTable {
        family,
        name: attributes.text(TABLE)?,
    };
    let (chain, kind) = (attributes.text(CHAIN)?, attributes.number32(TYPE)?);
    // At the end of a chain some kernels send a message of the type of rules, without a rule.
    let rule = attributes.number(RULE_HANDLE).filter(|_| kind == TYPE_RULE);
    let fingerprint = attributes.get(NETWORK_HEADER).and_then(|network| {
        HeaderFingerprint::of(
            network,
            attributes.get(TRANSPORT_HEADER).unwrap_or_default(),
        )
    });
    let step = |step| {
        Some(TraceEvent::Step {
            packet,
            fingerprint,
            step,
        })
    };
    if table == *own {
        return match OwnChain::of_name(&chain)? {
            OwnChain::Begins(direction) => rule.and_then(|_| step(TraceStep::Begun(direction))),
            OwnChain::Ends => step(TraceStep::Passed),
        };
    }
    let verdict = match kind {
        TYPE_RULE => verdict(attributes.nested(VERDICT)?)?,
        TYPE_POLICY => named(attributes.number32(POLICY)?.cast_signed(), None),
        TYPE_RETURN => TraceVerdict::Return,
        _ => return None,
    };
    step(TraceStep::Judged(TraceJudgement {
        table,
        chain,
        rule,
        verdict,
    }))
}

/// `NFTA_VERDICT_CODE` and `NFTA_VERDICT_CHAIN`.
fn verdict(attributes: Attributes<'_>) -> Option<TraceVerdict> {
    Some(named(
        attributes.number32(1)?.cast_signed(),
        attributes.text(2),
    ))
}

/// `NF_DROP` to `NF_QUEUE`, and `NFT_CONTINUE` to `NFT_RETURN`.
fn named(code: i32, chain: Option<String>) -> TraceVerdict {
    // NF_VERDICT_MASK: a queue has its number above it, and a drop its errno.
    let code = if code < 0 { code } else { code & 0xff };
    match code {
        0 => TraceVerdict::Drop,
        1 => TraceVerdict::Accept,
        2 => TraceVerdict::Stolen,
        3 => TraceVerdict::Queue,
        -1 => TraceVerdict::Continue,
        -3 => TraceVerdict::Jump(chain.unwrap_or_default()),
        -4 => TraceVerdict::Goto(chain.unwrap_or_default()),
        -5 => TraceVerdict::Return,
        other => TraceVerdict::Other(other),
    }
}

#[cfg(test)]
mod tests;
