//! The settings of a tunnel process.

use std::{net::Ipv4Addr, path::PathBuf};

use ipnet::Ipv4Net;

/// The settings of a tunnel process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelOptions {
    /// The path of the control socket.
    pub control: PathBuf,
    /// The TUN device.
    pub device: String,
    /// The pod network.
    pub network: Ipv4Net,
    /// The address of the UDP socket.
    pub source: Ipv4Addr,
    /// The UDP port, here and at all peers.
    pub port: u16,
}
