//! A drop-in `flanneld` with an eBPF datapath. ARCHITECTURE.md draws the map of these modules.

pub mod agent;
pub mod backend;
mod carrier;
pub mod check;
pub mod claims;
pub mod cleanup;
pub mod cli;
pub mod cluster;
pub mod connectivity;
pub mod diff;
pub mod document;
pub mod echo;
pub mod explain;
pub mod extension;
pub mod fast;
pub mod guard;
pub mod host_sysctls;
pub mod ipsec;
pub mod memory;
pub mod monitor;
pub mod observe;
pub mod offload;
pub mod options;
pub mod privileges;
pub mod reconcile;
pub mod reported_cluster;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod stable;
pub mod state_dir;
pub mod top;
pub mod traffic;
pub mod udp;
pub mod underlay;
pub mod wireguard;
