//! A trace as a part of the document. The names are an interface.

use serde::{Deserialize, Serialize};

/// The packets of a flow on their way through the rules of nf_tables, while they were traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TraceReport {
    /// Duration of the trace in milliseconds.
    pub milliseconds: u64,
    /// Packets of the flow that entered netfilter, traced or not.
    pub seen: u64,
    /// Packets of its replies that entered netfilter, likewise.
    pub seen_replies: u64,
    /// Packets of both directions whose way was followed. They are limited.
    pub traced: u64,
    /// Traced packets that a rule or a policy dropped.
    pub dropped: u64,
    /// Traced packets that passed all rules.
    pub passed: u64,
    /// Traced packets that a rule gave to a program, or to another part of the kernel.
    pub taken: u64,
    /// Traced packets that neither were dropped by a traced rule nor came to the last hook.
    pub unknown: u64,
    /// Packets of both directions that mode `fast` replayed, which do not pass netfilter.
    pub replayed: u64,
    /// The rules and policies that dropped, those of most packets first.
    pub drops: Vec<TraceDrop>,
    /// The different ways of packets, dropped ones first, then those of most packets.
    pub paths: Vec<TracePath>,
    /// Traced packets whose way is not in `paths`, because there are too many.
    pub omitted: u64,
    /// Rules of this node that are not traced, by the chains or tables that have them.
    pub untraced: Vec<String>,
    /// True if the kernel lost events of the trace.
    pub events_lost: bool,
}

/// A rule or a policy that dropped packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TraceDrop {
    /// Packets that it dropped.
    pub packets: u64,
    /// The direction of these packets.
    pub direction: PacketDirection,
    /// The rule, or the policy.
    pub rule: TracedRule,
}

/// A way through the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TracePath {
    /// Packets that took it.
    pub packets: u64,
    /// Their direction.
    pub direction: PacketDirection,
    /// Their end.
    pub outcome: TraceOutcome,
    /// The rules and policies that decided about them, in their order.
    pub rules: Vec<TracedRule>,
}

/// A rule or the policy of a chain, with its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TracedRule {
    /// The family of the table, such as `inet` or `ip`.
    pub family: String,
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The handle of the rule; `null` for the policy of the chain.
    pub handle: Option<u64>,
    /// The verdict, such as `drop` or `jump KUBE-FORWARD`.
    pub verdict: String,
    /// The text of the rule; `null` for a policy, without nft, and for a rule that is gone.
    pub text: Option<String>,
}

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PacketDirection {
    /// As asked.
    Original,
    /// Back.
    Reply,
}

/// The end of a packet's way through the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum TraceOutcome {
    /// A rule or a policy dropped it.
    Dropped,
    /// It did not come to the last hook, and no traced rule dropped it.
    Unknown,
    /// A rule gave it to a program, or to another part of the kernel.
    Taken,
    /// It passed all rules.
    Passed,
}
