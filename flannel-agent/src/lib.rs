//! Agent.

pub mod netlink;
