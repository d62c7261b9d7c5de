//! The commands on one node: their options, and their output as text and as JSON.
//!
//! Their answers are found by other crates (`explain`, `inspect`, `flows`, `top`), and not judged
//! here.

pub mod check;
mod cloud;
pub mod datapath;
mod echo;
pub mod explain;
mod extension;
pub mod flows;
pub mod guard;
mod ipsec;
pub mod maps;
pub mod monitor;
pub mod status;
pub mod top;
pub mod udp;
mod wireguard;
