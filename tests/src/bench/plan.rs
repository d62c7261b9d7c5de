//! The dimensions of a measurement, and their names on the command line and in JSON.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The behaviour of the cable between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Profile {
    /// A veth's defaults: large segments cross it whole, as through a NIC with tunnel offloads.
    Offload,
    /// Both ends without TSO and tunnel segmentation, with GRO: packets cross it as they would a
    /// wire.
    Wire,
}

/// The traffic between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum Workload {
    /// One TCP stream.
    #[serde(rename = "tcp_stream_1")]
    #[value(name = "tcp_stream_1")]
    TcpStream1,
    /// Eight TCP streams at once.
    #[serde(rename = "tcp_stream_8")]
    #[value(name = "tcp_stream_8")]
    TcpStream8,
    /// Request and response over one TCP connection.
    #[serde(rename = "tcp_rr")]
    TcpRr,
    /// Request and response over UDP.
    #[serde(rename = "udp_rr")]
    UdpRr,
    /// Connect, request, response, close.
    #[serde(rename = "tcp_crr")]
    TcpCrr,
    /// Connect, ten requests with their responses, close.
    #[serde(rename = "tcp_crr_10")]
    #[value(name = "tcp_crr_10")]
    TcpCrr10,
    /// A query by UDP from a new port, and the answer.
    #[serde(rename = "udp_query")]
    UdpQuery,
    /// Small datagrams one way, as the receiver counts them.
    #[serde(rename = "udp_pps")]
    UdpPps,
}

/// The address the client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Via {
    /// The server's own.
    Pod,
    /// The virtual address of a Service, translated by the client's node.
    Service,
}

/// The path of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(super) enum Mode {
    /// From node to node, without pods and tunnel.
    Host,
    /// From node to node through the devices of the backend wireguard, without pods.
    WireguardHost,
    /// The backend wireguard in the agent's mode `kernel`.
    Wireguard,
    /// The backend wireguard in the agent's mode `fast`.
    WireguardFast,
    /// From a pod to the other node itself, masqueraded, in the agent's mode `kernel`.
    OutwardKernel,
    /// The same in mode `fast`.
    OutwardFast,
    /// From the other node itself to a pod by a port of its node, in the agent's mode `kernel`.
    InwardKernel,
    /// The same in mode `fast`.
    InwardFast,
    /// The agent's mode `kernel`.
    Kernel,
    /// The agent's mode `encap`.
    Encap,
    /// The agent's mode `fast`.
    Fast,
    /// A stock flanneld.
    Stock,
    /// Mode `fast` of another build of the agent.
    Other,
}

impl Profile {
    pub(super) const ALL: [Self; 2] = [Self::Offload, Self::Wire];
}

impl Workload {
    pub(super) const ALL: [Self; 8] = [
        Self::TcpStream1,
        Self::TcpStream8,
        Self::TcpRr,
        Self::UdpRr,
        Self::TcpCrr,
        Self::TcpCrr10,
        Self::UdpQuery,
        Self::UdpPps,
    ];

    /// The unit of a value; more is better.
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::TcpStream1 | Self::TcpStream8 => "Gbit/s",
            Self::TcpRr | Self::UdpRr => "transactions/s",
            Self::TcpCrr | Self::TcpCrr10 => "connections/s",
            Self::UdpQuery => "queries/s",
            Self::UdpPps => "packets/s",
        }
    }

    /// Returns the unit of `cpu_per_unit`.
    pub(super) const fn cpu_unit(self) -> &'static str {
        match self {
            Self::TcpStream1 | Self::TcpStream8 => "ms/Gbit",
            Self::TcpRr | Self::UdpRr => "us/transaction",
            Self::TcpCrr | Self::TcpCrr10 => "us/connection",
            Self::UdpQuery => "us/query",
            Self::UdpPps => "us/packet",
        }
    }

    /// Requests of a connection that is closed after them; 0 for other loads.
    pub(super) const fn requests(self) -> u32 {
        match self {
            Self::TcpCrr => 1,
            Self::TcpCrr10 => 10,
            _ => 0,
        }
    }

    /// Connections at a time.
    pub(super) const fn flows(self) -> u64 {
        if matches!(self, Self::TcpStream8) {
            8
        } else {
            1
        }
    }

    /// Returns the divisor from bytes, transactions, connections or packets to [`Workload::unit`].
    pub(super) const fn per_unit(self) -> f64 {
        match self {
            Self::TcpStream1 | Self::TcpStream8 => 1e9 / 8.0,
            Self::TcpRr
            | Self::UdpRr
            | Self::TcpCrr
            | Self::TcpCrr10
            | Self::UdpQuery
            | Self::UdpPps => 1.0,
        }
    }

    /// Returns the factor from seconds to [`Workload::cpu_unit`].
    pub(super) const fn cpu_scale(self) -> f64 {
        match self {
            Self::TcpStream1 | Self::TcpStream8 => 1e3,
            Self::TcpRr
            | Self::UdpRr
            | Self::TcpCrr
            | Self::TcpCrr10
            | Self::UdpQuery
            | Self::UdpPps => 1e6,
        }
    }

    /// Returns the name in documents and charts.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::TcpStream1 => "TCP, one stream",
            Self::TcpStream8 => "TCP, eight streams",
            Self::TcpRr => "TCP request/response",
            Self::UdpRr => "UDP request/response",
            Self::TcpCrr => "TCP connect/request/close",
            Self::TcpCrr10 => "TCP connect/10 requests/close",
            Self::UdpQuery => "UDP query/answer",
            Self::UdpPps => "UDP, 64 bytes one way",
        }
    }
}

impl Via {
    pub(super) const ALL: [Self; 2] = [Self::Pod, Self::Service];

    /// Returns the server's port. Each kind of address has its own port. With one port, connections
    /// by both from one port of the client would differ only in one direction, and conntrack would
    /// have to give one of them another port.
    pub(super) const fn port(self) -> u16 {
        match self {
            Self::Pod => 7000,
            Self::Service => 7001,
        }
    }
}

impl Mode {
    /// Every mode, in the order of tables and charts.
    pub(super) const ALL: [Self; 13] = [
        Self::Host,
        Self::Stock,
        Self::Kernel,
        Self::Encap,
        Self::Other,
        Self::Fast,
        Self::OutwardKernel,
        Self::OutwardFast,
        Self::InwardKernel,
        Self::InwardFast,
        Self::WireguardHost,
        Self::Wireguard,
        Self::WireguardFast,
    ];

    /// Returns true if client and server run on the nodes, not in pods.
    pub(super) const fn is_between_nodes(self) -> bool {
        matches!(self, Self::Host | Self::WireguardHost)
    }

    /// Returns true if the server is outside the pods.
    pub(super) const fn is_outward(self) -> bool {
        matches!(self, Self::OutwardKernel | Self::OutwardFast)
    }

    /// Returns true if the client is outside the pods.
    pub(super) const fn is_inward(self) -> bool {
        matches!(self, Self::InwardKernel | Self::InwardFast)
    }

    /// Returns true if the agents have the backend wireguard.
    pub(super) const fn is_encrypted(self) -> bool {
        matches!(
            self,
            Self::WireguardHost | Self::Wireguard | Self::WireguardFast
        )
    }

    /// The mode without pods that this one is compared with: packets travel by the same means.
    pub(super) const fn base(self) -> Self {
        if self.is_encrypted() {
            Self::WireguardHost
        } else {
            Self::Host
        }
    }

    /// The mode with the same ends in which the kernel does everything.
    pub(super) const fn kernel(self) -> Self {
        match self {
            Self::OutwardKernel | Self::OutwardFast => Self::OutwardKernel,
            Self::InwardKernel | Self::InwardFast => Self::InwardKernel,
            _ => Self::Kernel,
        }
    }

    /// Returns the agent's mode as `--datapath` takes it; `None` for a mode without an agent.
    pub(super) const fn datapath(self) -> Option<&'static str> {
        match self {
            Self::Host | Self::Stock => None,
            Self::Kernel
            | Self::OutwardKernel
            | Self::InwardKernel
            | Self::WireguardHost
            | Self::Wireguard => Some("kernel"),
            Self::Encap => Some("encap"),
            Self::Fast
            | Self::OutwardFast
            | Self::InwardFast
            | Self::Other
            | Self::WireguardFast => Some("fast"),
        }
    }

    /// Returns the name in documents and charts.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Host => "host network",
            Self::Stock => "stock flanneld",
            Self::Kernel => "mode kernel",
            Self::Encap => "mode encap",
            Self::Fast => "mode fast",
            Self::OutwardKernel => "pod to outside, mode kernel",
            Self::OutwardFast => "pod to outside, mode fast",
            Self::InwardKernel => "NodePort, mode kernel",
            Self::InwardFast => "NodePort, mode fast",
            Self::Other => "mode fast, other build",
            Self::WireguardHost => "WireGuard, nodes",
            Self::Wireguard => "backend wireguard",
            Self::WireguardFast => "backend wireguard, mode fast",
        }
    }
}

/// Writes the name that the command line and JSON use.
macro_rules! display_by_name {
    ($($kind:ty),+) => { $(
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
            }
        }
    )+ };
}

display_by_name!(Profile, Workload, Via, Mode);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_and_json_have_the_same_names() {
        fn check<T: ValueEnum + Serialize + fmt::Display>() {
            for value in T::value_variants() {
                assert_eq!(
                    serde_json::to_value(value).expect("plain data"),
                    value.to_string().as_str()
                );
            }
        }
        check::<Profile>();
        check::<Workload>();
        check::<Via>();
        check::<Mode>();
    }

    #[test]
    fn every_workload_and_mode_is_listed() {
        assert_eq!(Workload::ALL.as_slice(), Workload::value_variants());
        assert!(
            Mode::value_variants()
                .iter()
                .all(|mode| Mode::ALL.contains(mode))
        );
    }
}
