//! A drop-in `flanneld` with an eBPF datapath. ARCHITECTURE.md draws the map of these modules.

pub mod agent;
pub mod backend;
pub mod check;
pub mod cleanup;
pub mod cli;
pub mod clock;
pub mod config;
pub mod count;
pub mod datapath;
pub mod diff;
pub mod explain;
pub mod family;
pub mod fast;
pub mod file;
pub mod firewall;
pub mod guard;
pub mod iface;
pub mod memory;
pub mod monitor;
pub mod netlink;
pub mod observe;
pub mod reconcile;
pub mod subnet;
pub mod sysctls;
pub mod traffic;
pub mod underlay;
