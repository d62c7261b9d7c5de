//! The firewall rules of this host, as far as they bear on pods' packets: read, never written.
//!
//! They answer two questions:
//!
//! * Modes `fast` and `encap` show rules one packet in two seconds. [`Ruleset::per_packet`] lists
//!   the rules that match single packets. It leaves out rules of NAT chains: conntrack evaluates
//!   them once for each connection.
//! * [`Ruleset::at_port`] and [`Ruleset::dropping_policies`] list the rules that name the tunnel's
//!   port, and the chains that drop by default.
//!
//! Rules are not evaluated.
//!
//! Two readers, of `nft -j` (`nft`) and of the `save` tools (`save`, `ebtables`, both by `dump`),
//! fill one model (`model`) by one catalogue (`catalogue`). All are pure, except `read`, which runs
//! the tools.

mod catalogue;
mod dump;
mod ebtables;
mod judge;
mod model;
mod nft;
mod read;
#[cfg(test)]
mod recorded;
mod save;
mod watch;

pub use self::{
    judge::PerPacket,
    model::Ruleset,
    watch::{RuleLimit, Watch},
};
