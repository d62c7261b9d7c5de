//! The hooks whose rules are read.

use super::model::{ChainHook, HostRule};

/// The table whose rules judge the first packet of a connection.
const NAT: &str = "nat";

/// The table whose rules are for dropping packets.
const FILTER: &str = "filter";

/// The hooks whose rules are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hooks {
    /// All, for the rules that name a port.
    All,
    /// Those that see every packet.
    EachPacket,
    /// That of forwarded packets, and of its rules only those for all packets: few, however many
    /// Services there are.
    Forward,
}

impl Hooks {
    /// True if the rules of this hook are read.
    pub(super) fn have(self, hook: &ChainHook) -> bool {
        match self {
            Self::All => true,
            Self::EachPacket => !hook.nat,
            Self::Forward => hook.at == "forward",
        }
    }

    /// True if packets of these hooks pass tables of this name in the legacy variant.
    pub(super) fn have_table(self, table: &str) -> bool {
        match self {
            Self::All => true,
            Self::EachPacket => table != NAT,
            Self::Forward => table == FILTER,
        }
    }

    /// The chains to go on with from a rule.
    pub(super) fn follow(self, rule: &HostRule) -> impl Iterator<Item = &String> {
        rule.targets
            .iter()
            .filter(move |_| self != Self::Forward || rule.is_for_all)
    }
}
