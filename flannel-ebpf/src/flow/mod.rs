//! Mode `fast`: the flow table, learning a flow from a packet that the kernel handled, and
//! replaying that on the next packets of the flow.

pub(crate) mod arrival;
pub(crate) mod close_guard;
pub(crate) mod conntrack;
mod hint;
mod layout;
pub(crate) mod learn;
pub(crate) mod netfilter;
mod outside;
pub(crate) mod pending;
mod probation;
pub(crate) mod reception;
pub(crate) mod replay;
pub(crate) mod scratch;
pub(crate) mod softirq;
pub(crate) mod table;
pub(crate) mod transport_checksum;
pub(crate) mod volatile;
mod window_check;
