//! A drop-in `flanneld` with an eBPF datapath. ARCHITECTURE.md draws the map of these modules.

pub mod datapath;
pub mod iface;
pub mod netlink;
