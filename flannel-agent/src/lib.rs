//! A drop-in `flanneld` with an eBPF datapath. ARCHITECTURE.md draws the map of these modules.

pub mod agent;
pub mod check;
pub mod cleanup;
pub mod cli;
pub mod cluster;
pub mod connectivity;
pub mod diff;
pub mod document;
pub mod explain;
pub mod flow_events;
pub mod guard;
#[cfg(feature = "hubble")]
mod hubble;
pub mod memory;
pub mod monitor;
pub mod names;
pub mod observe;
pub mod options;
pub mod privileges;
pub mod reported_cluster;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod stable;
pub mod state_dir;
pub mod top;
pub mod traffic_history;
