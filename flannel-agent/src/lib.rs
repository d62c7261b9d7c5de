//! A drop-in `flanneld` with an eBPF datapath. ARCHITECTURE.md draws the map of these modules.

pub mod agent;
pub mod backend;
pub mod check;
pub mod cleanup;
pub mod cli;
pub mod cluster;
pub mod connectivity;
pub mod datapath;
pub mod diff;
pub mod echo;
pub mod explain;
pub mod fast;
pub mod firewall;
pub mod guard;
pub mod iface;
pub mod monitor;
pub mod observe;
pub mod options;
pub mod privileges;
pub mod reconcile;
pub mod rules;
pub mod state_dir;
pub mod top;
pub mod traffic;
pub mod underlay;
pub mod wireguard;
