//! A drop-in `flanneld` with an eBPF datapath. ARCHITECTURE.md draws the map of these modules.

pub mod cli;
pub mod config;
pub mod datapath;
pub mod iface;
pub mod netlink;
pub mod subnet;
