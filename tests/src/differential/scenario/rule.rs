//! Rules of the firewall, whichever tool writes them.

use super::{Direction, Flow, Place, Side};
use crate::{fast::Family, load::rr::Protocol};

/// A table of iptables; with nft, a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Before conntrack.
    Raw,
    /// Before routing decisions are final.
    Mangle,
    /// Translation.
    Nat,
    /// Policy.
    Filter,
}

/// A hook of netfilter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Packets that come in by a device.
    Prerouting,
    /// Packets for the node itself.
    Input,
    /// Forwarded packets.
    Forward,
    /// Packets of the node itself.
    Output,
    /// Packets that leave by a device.
    Postrouting,
}

impl Table {
    /// The tables.
    pub const ALL: [Self; 4] = [Self::Raw, Self::Mangle, Self::Nat, Self::Filter];

    /// The hooks it has.
    pub const fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Raw => &[Hook::Prerouting, Hook::Output],
            Self::Mangle => &[
                Hook::Prerouting,
                Hook::Input,
                Hook::Forward,
                Hook::Output,
                Hook::Postrouting,
            ],
            Self::Nat => &[Hook::Prerouting, Hook::Output, Hook::Postrouting],
            Self::Filter => &[Hook::Input, Hook::Forward, Hook::Output],
        }
    }

    /// Its name in iptables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Mangle => "mangle",
            Self::Nat => "nat",
            Self::Filter => "filter",
        }
    }
}

impl Hook {
    /// Its name in iptables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prerouting => "PREROUTING",
            Self::Input => "INPUT",
            Self::Forward => "FORWARD",
            Self::Output => "OUTPUT",
            Self::Postrouting => "POSTROUTING",
        }
    }
}

/// A program that writes rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// nft.
    Nft,
    /// iptables, nf_tables variant.
    IptablesNft,
    /// iptables, legacy variant.
    IptablesLegacy,
}

impl Tool {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nft, Self::IptablesNft, Self::IptablesLegacy];
}

/// The packets a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of these flows in one direction, which share a protocol.
    Flows(Vec<u16>, Direction),
    /// All of a protocol.
    All(Protocol),
    /// The outer packets of the tunnel.
    Outer,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Equal.
    Equal,
    /// Less than.
    Below,
    /// Greater than.
    Above,
}

/// A state of conntrack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The first packets.
    New,
    /// Answered.
    Established,
    /// None.
    Invalid,
}

/// A condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// DSCP, or any but this one.
    Dscp(u8, bool),
    /// TTL or hop limit.
    Ttl(Compare, u8),
    /// The mark.
    Mark(u32),
    /// Conntrack's mark.
    ConnMark(u32),
    /// Conntrack's state.
    State(State),
    /// The source is one of these pods, by a set where the tool has them.
    Sources(Vec<Place>),
    /// The destination, likewise.
    Destinations(Vec<Place>),
    /// ECN.
    Ecn(u8),
    /// Longer than this number of bytes.
    Longer(u16),
    /// TCP flag PSH.
    Push,
    /// Conntrack's helper is FTP's.
    Helper,
}

impl Match {
    /// Returns true for a property that differs between packets of a flow and does not belong to a
    /// learned flow.
    pub const fn is_per_packet(&self) -> bool {
        matches!(self, Self::Ecn(_) | Self::Longer(_) | Self::Push)
    }
}

/// The effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Counts, and no more.
    Count,
    /// Ends the traversal of the table's hook.
    Accept,
    /// Drops.
    Drop,
    /// Drops with an answer.
    Reject,
    /// Sets the mark.
    SetMark(u32),
    /// Sets conntrack's mark.
    SetConnMark(u32),
    /// Conntrack's mark becomes the packet's.
    SaveMark,
    /// The packet's mark becomes conntrack's.
    RestoreMark,
    /// Sets DSCP.
    SetDscp(u8),
    /// Sets TTL or hop limit.
    SetTtl(u8),
    /// A copy for a pod of the same node.
    Copy(Place),
    /// To a listener of nfnetlink_log, or to no one.
    Log,
    /// To the listener of queue 0.
    Queue,
    /// The source becomes the node's.
    Masquerade,
    /// The destination becomes this pod and the port of this flow's server.
    Redirect(u16),
    /// Conntrack's helper for FTP.
    AssignHelper,
}

impl Action {
    /// True for an effect outside the packet, which only packets on the kernel's path have.
    pub const fn is_per_packet(self) -> bool {
        matches!(self, Self::Copy(_) | Self::Log)
    }

    /// True if the packet goes no further.
    pub const fn ends_packet(self) -> bool {
        matches!(self, Self::Drop | Self::Reject)
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its number in the scenario, which its counter is known by.
    pub id: u16,
    /// The node.
    pub side: Side,
    /// The tool that writes it.
    pub tool: Tool,
    /// Address family.
    pub family: Family,
    /// The table.
    pub table: Table,
    /// The hook.
    pub hook: Hook,
    /// True if the rule lies in its own chain, which the hook's chain jumps to.
    pub nested: bool,
    /// The packets it is about.
    pub scope: Scope,
    /// Under which conditions.
    pub matches: Vec<Match>,
    /// Its effect.
    pub action: Action,
}

impl Rule {
    /// True if it judges packets of known flows one by one.
    pub fn is_per_packet(&self) -> bool {
        self.matches.iter().any(Match::is_per_packet)
    }

    /// True if packets of this flow in this direction may meet it.
    pub fn may_see(&self, flow: &Flow, direction: Direction) -> bool {
        let crosses = flow.to.side() == Side::B;
        let is_there = self.side == Side::A || crosses;
        let is_family = self.family == flow.family;
        is_there
            && is_family
            && match &self.scope {
                Scope::Flows(ids, only) => ids.contains(&flow.id) && *only == direction,
                Scope::All(protocol) => *protocol == flow.protocol(),
                Scope::Outer => crosses,
            }
    }
}
