//! Agent.

pub mod iface;
pub mod netlink;
