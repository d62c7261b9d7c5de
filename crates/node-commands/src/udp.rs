//! The backend udp on the command line: its process as `status` prints it, and the process itself.

use std::{net::Ipv4Addr, path::PathBuf};

use clap::Args;
use flannel_backends::udp::{TunnelOptions, carry};
use flannel_host::words::count;
use flannel_status::UdpStatus;
use ipnet::Ipv4Net;

/// The settings of the process, as the agent writes them.
#[derive(Clone, Debug, Args)]
pub struct UdpTunnelOptions {
    /// The path of the control socket
    #[arg(long)]
    control: PathBuf,
    /// The TUN device
    #[arg(long)]
    device: String,
    /// The pod network
    #[arg(long)]
    network: Ipv4Net,
    /// The address of the UDP socket
    #[arg(long)]
    source: Ipv4Addr,
    /// The UDP port of all nodes
    #[arg(long)]
    port: u16,
}

/// Carries packets until the process is to end.
pub fn run(options: &UdpTunnelOptions) -> anyhow::Result<String> {
    let UdpTunnelOptions {
        control,
        device,
        network,
        source,
        port,
    } = options.clone();
    carry(TunnelOptions {
        control,
        device,
        network,
        source,
        port,
    })?;
    Ok(String::new())
}

/// Describes the process and its packets.
pub fn summary(status: &UdpStatus) -> String {
    let UdpStatus {
        pid, port, counts, ..
    } = status;
    let process = pid.map_or_else(|| "not running".to_owned(), |pid| format!("process {pid}"));
    let drops: Vec<_> = counts
        .drops()
        .into_iter()
        .filter(|(_, packets)| *packets > 0)
        .collect();
    let total: u64 = drops.iter().map(|(_, packets)| packets).sum();
    let reasons: Vec<_> = drops
        .iter()
        .map(|(reason, packets)| format!("{packets} {reason}"))
        .collect();
    let dropped = if total > 0 {
        format!(", {total} dropped ({})", reasons.join(", "))
    } else {
        String::new()
    };
    format!(
        "{process}, UDP port {port}; {} sent, {} received{dropped}",
        count(counts.sent_packets, "packet", "packets"),
        counts.received_packets
    )
}

#[cfg(test)]
mod tests {
    use flannel_backends::udp::Counts;

    use super::*;

    #[test]
    fn the_process_and_what_it_dropped_are_named() {
        let counts = Counts {
            sent_packets: 3,
            received_packets: 2,
            no_route: 1,
            ttl_exceeded: 4,
            ..Counts::default()
        };
        let status = UdpStatus {
            pid: Some(7),
            port: 8285,
            counts,
            ..UdpStatus::default()
        };
        let text = "process 7, UDP port 8285; 3 packets sent, 2 received, 5 dropped (1 no_route, 4 \
            ttl_exceeded)";
        assert_eq!(summary(&status), text);
        let gone = UdpStatus {
            pid: None,
            error: Some("killed".to_owned()),
            ..UdpStatus::default()
        };
        assert_eq!(
            summary(&gone),
            "not running, UDP port 0; 0 packets sent, 0 received"
        );
    }
}
