//! `flannel-agent monitor`: what the programs do to packets, live, from what they tell (`flannel_common::monitor`).
//!
//! Reading an event ([`seen`], [`packet`]) and writing it ([`text`], [`json`], [`pcapng`]) are pure; the maps are
//! `datapath::monitor`'s, and when to look into them is the command's (`cli::monitor`).

mod devices;
pub mod json;
pub mod packet;
pub mod pcapng;
pub mod seen;
pub mod text;

pub use devices::Devices;
pub use seen::Seen;

#[cfg(test)]
mod tests;
