//! The firewall rules of this host that bear on pods' packets: read, never written.
//!
//! They answer three questions:
//!
//! * Modes `fast` and `encap` show rules one packet in two seconds. [`Ruleset::per_packet`] lists
//!   the rules that match single packets. It leaves out rules of NAT chains: conntrack evaluates
//!   them once for each connection.
//! * [`Ruleset::at_port`] and [`Ruleset::dropping_policies`] list the rules that name the tunnel's
//!   port, and the chains that drop by default.
//! * [`services`] lists the Services of an address, as rules of kube-proxy have them.
//!
//! Rules are not evaluated.
//!
//! Rules of nf_tables are read by netlink (`nft`, `xtables`), those of the legacy iptables by its
//! `save` tools (`saved`). Both readers fill one model (`model`) by one catalogue (`catalogue`),
//! rule by rule, and a rule is judged when it is read (`judge`). All are pure, except `nft`, `read`
//! and `watch`.
//!
//! `flannel_firewall_tools` runs the tools and reads the forms in which they print rules.

#![forbid(unsafe_code)]

mod catalogue;
mod hooks;
mod judge;
mod model;
mod nft;
mod read;
#[cfg(test)]
mod recorded;
mod saved;
pub mod services;
mod watch;
mod xtables;

pub use self::{
    judge::PerPacket,
    model::Ruleset,
    nft::nft_family,
    watch::{NEVER_READ, RuleLimit, Watch},
};
