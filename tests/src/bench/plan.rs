//! What is measured.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

/// How the cable between the nodes behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Profile {
    /// A veth's defaults: large segments cross it whole, as through a NIC with tunnel offloads.
    Offload,
    /// Both ends without TSO and tunnel segmentation, with GRO: packets cross it as they would a wire.
    Wire,
}

/// What the pods do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(super) enum Workload {
    /// One TCP stream.
    #[serde(rename = "tcp_stream_1")]
    #[value(name = "tcp_stream_1")]
    TcpStream,
    /// Request and response over one TCP connection.
    TcpRr,
    /// Request and response over UDP.
    UdpRr,
}

/// How the packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// From node to node, without pods and tunnel.
    Host,
    /// The agent's mode `kernel`.
    Kernel,
    /// The agent's mode `encap`.
    Encap,
    /// The agent's mode `fast`.
    Fast,
}

impl Profile {
    pub(super) const ALL: [Self; 2] = [Self::Offload, Self::Wire];
}

impl Workload {
    pub(super) const ALL: [Self; 3] = [Self::TcpStream, Self::TcpRr, Self::UdpRr];

    /// The unit of a value.
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::TcpStream => "Gbit/s",
            Self::TcpRr | Self::UdpRr => "us",
        }
    }

    /// What `cpu_per_unit` counts: time of the pinned CPU, whoever used it.
    pub(super) const fn cpu_unit(self) -> &'static str {
        match self {
            Self::TcpStream => "ms/Gbit",
            Self::TcpRr | Self::UdpRr => "us/transaction",
        }
    }
}

impl Mode {
    pub(super) const ALL: [Self; 4] = [Self::Host, Self::Kernel, Self::Encap, Self::Fast];
}

/// Writes the name that the command line and JSON use.
fn name(value: &impl ValueEnum, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let value = value.to_possible_value();
    f.pad(value.as_ref().map_or("", |value| value.get_name()))
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        name(self, f)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        name(self, f)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        name(self, f)
    }
}
