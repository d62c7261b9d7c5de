//! The addresses at which the agent answers, and the series of metrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::{ArgAction, Args};
use flannel_common::abi::traffic::PEER_TRAFFIC_MAX;

use super::check::Checks;

/// The series of single peers and pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficSeries {
    /// The most peers with series.
    pub peers: u32,
    /// True if pods have series.
    pub pods: bool,
}

/// The addresses at which the agent answers, and the series of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listeners {
    /// Health checks; `None` if they are not answered.
    pub healthz: Option<SocketAddr>,
    /// Metrics; `None` for the address of health checks.
    pub metrics: Option<SocketAddr>,
    /// The peers and pods that have series.
    pub series: TrafficSeries,
}

/// Flags of the addresses at which the agent answers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Health and metrics")]
pub(super) struct ListenerFlags {
    /// Address to answer health checks at, and `/metrics` without --metrics-port
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    healthz_ip: String,
    /// Port to answer health checks at, /healthz and /readyz, and /metrics without --metrics-port;
    /// 0 for none. A port that another process has is tried again every second
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    healthz_port: i64,
    /// Address to answer `/metrics` at, with --metrics-port; 0.0.0.0 for all
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    metrics_ip: String,
    /// Separate port for /metrics, for Prometheus; --healthz-port then does not serve /metrics. 0
    /// for none. A port that another process has is tried again every second
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    metrics_port: i64,
    /// Peers whose traffic has separate series in `/metrics`, at most, 0 to 8191: four series for
    /// each subnet of a peer
    #[arg(
        long,
        value_name = "PEERS",
        default_value_t = 128,
        allow_negative_numbers = true
    )]
    metrics_peers: i64,
    /// Give the traffic of each pod separate series in `/metrics`: four for each pod that mode
    /// `fast` knows
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    metrics_pods: bool,
}

impl ListenerFlags {
    pub(super) fn check(&self, checks: &mut Checks) -> Listeners {
        Listeners {
            healthz: listener(
                checks,
                ["healthz-ip", "healthz-port"],
                &self.healthz_ip,
                self.healthz_port,
            ),
            metrics: listener(
                checks,
                ["metrics-ip", "metrics-port"],
                &self.metrics_ip,
                self.metrics_port,
            ),
            series: TrafficSeries {
                peers: self.peers(checks),
                pods: self.metrics_pods,
            },
        }
    }

    /// The most peers with series.
    fn peers(&self, checks: &mut Checks) -> u32 {
        match u32::try_from(self.metrics_peers) {
            Ok(peers) if peers <= PEERS_MAX => peers,
            _ => {
                checks.refuse("metrics-peers", self.metrics_peers, "0 to 8191");
                0
            }
        }
    }
}

/// The most slots of peers: one is shared.
const PEERS_MAX: u32 = PEER_TRAFFIC_MAX - 1;

/// Returns the address to listen on, by the two flags of a listener; `None` if the port is 0 or a
/// mistake. An empty address means any, as in Go.
fn listener(
    checks: &mut Checks,
    [ip_flag, port_flag]: [&'static str; 2],
    ip: &str,
    port: i64,
) -> Option<SocketAddr> {
    let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let ip = checks
        .optional(ip_flag, ip, "an IP address")
        .unwrap_or(unspecified);
    match u16::try_from(port) {
        Ok(0) => None,
        Ok(port) => Some(SocketAddr::new(ip, port)),
        Err(_) => {
            checks.refuse(port_flag, port, "0 to 65535");
            None
        }
    }
}
