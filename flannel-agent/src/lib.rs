//! A drop-in `flanneld` with an eBPF datapath: start-up and the main loop. ARCHITECTURE.md draws
//! the map of the crates that they compose.

pub mod agent;
#[cfg(feature = "hubble")]
mod hubble;
pub mod memory;
#[cfg(test)]
mod stable;
