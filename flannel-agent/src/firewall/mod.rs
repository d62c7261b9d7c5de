//! The firewall rules of this host, as far as they bear on pods' packets: read, never written.
//!
//! They answer two questions. Modes `fast` and `encap` show rules one packet in two seconds:
//! which rules look at single packets ([`Ruleset::per_packet`])? And which name the tunnel's port,
//! or drop by default ([`Ruleset::at_port`], [`Ruleset::dropping_policies`])? Rules of NAT chains
//! are left out of the first: conntrack asks them once for each connection. Rules are not
//! evaluated.
//!
//! Two readers, of `nft -j` (`nft`) and of the `save` tools (`save`, `ebtables`), fill one
//! model (`model`) by one catalogue (`catalogue`). All are pure, except `read`, which runs
//! the tools.

mod catalogue;
mod ebtables;
mod judge;
mod model;
mod nft;
mod read;
#[cfg(test)]
mod recorded;
mod save;
mod watch;
mod words;

pub use self::{
    judge::PerPacket,
    model::Ruleset,
    watch::{Limit, Watch},
};
