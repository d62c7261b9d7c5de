//! `flannel-agent monitor`: a live view of what the BPF programs do to packets, from the events
//! they emit (`flannel_common::abi::monitor`).
//!
//! Decoding an event ([`seen`], [`packet`]) and formatting it ([`text`], [`json`], [`pcapng`]) are
//! pure. `flannel_datapath::monitor` owns the maps, and the command (`cli::monitor`) decides when
//! to read them.

mod devices;
pub mod json;
mod names;
pub mod packet;
pub mod pcapng;
pub mod seen;
pub mod text;

pub use devices::DeviceNames;
pub use names::{EndName, Names};
pub use seen::Seen;

#[cfg(test)]
mod tests;
