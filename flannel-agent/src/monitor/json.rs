//! One JSON object for each packet, on its own line, for programs.

use std::{fmt::Write as _, net::IpAddr, time::Duration};

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::monitor::{
    EndName, Names, Seen,
    packet::{Packet, PacketAddresses},
};

#[derive(Debug, Serialize)]
struct Row<'a> {
    /// [RFC 3339](https://www.rfc-editor.org/rfc/rfc3339), UTC, nanoseconds.
    time: String,
    program: &'static str,
    reason: &'static str,
    verdict: &'static str,
    interface: String,
    ifindex: u32,
    direction: &'static str,
    /// Bytes of the inner frame.
    length: u32,
    gso_size: Option<u32>,
    protocol: Option<String>,
    source: Option<IpAddr>,
    source_port: Option<u16>,
    destination: Option<IpAddr>,
    destination_port: Option<u16>,
    /// Namespace and name of a pod of this node.
    source_pod: Option<&'a str>,
    destination_pod: Option<&'a str>,
    /// Namespace and name of a Service.
    source_service: Option<&'a str>,
    destination_service: Option<&'a str>,
    outer_source: Option<IpAddr>,
    outer_destination: Option<IpAddr>,
    /// The first bytes of the inner frame, hexadecimal.
    bytes: String,
}

/// The object, with the end of its line.
pub fn line(seen: &Seen<'_>, epoch: Duration, names: &mut Names) -> String {
    let ip = match seen.packet() {
        Packet::Ip(ip) => Some(ip),
        Packet::Other { .. } => None,
    };
    let ports = ip.and_then(|ip| ip.ports());
    let outer: Option<PacketAddresses> = seen.outer();
    let interface = names.devices.name(seen.ifindex());
    let [source, destination] = names.ends(ip.map(|ip| ip.addresses));
    let row = Row {
        time: rfc3339(seen.time(epoch)),
        program: seen.program.name(),
        reason: seen.reason.name(),
        verdict: seen.reason.verdict().name(),
        interface,
        ifindex: seen.ifindex(),
        direction: if seen.is_outbound() { "out" } else { "in" },
        length: seen.frame_len(),
        gso_size: seen.gso_size(),
        protocol: ip.map(|ip| ip.protocol_name()),
        source: ip.map(|ip| ip.addresses.source),
        source_port: ports.map(|[from, _]| from),
        destination: ip.map(|ip| ip.addresses.destination),
        destination_port: ports.map(|[_, to]| to),
        source_pod: source.and_then(EndName::pod),
        destination_pod: destination.and_then(EndName::pod),
        source_service: source.and_then(EndName::service),
        destination_service: destination.and_then(EndName::service),
        outer_source: outer.map(|outer| outer.source),
        outer_destination: outer.map(|outer| outer.destination),
        bytes: hex(seen.frame()),
    };
    serde_json::to_string(&row).expect("its keys are strings") + "\n"
}

fn rfc3339(time: Duration) -> String {
    let nanoseconds = i128::try_from(time.as_nanos()).unwrap_or_default();
    format!("{:.9}", Timestamp::from_nanosecond(nanoseconds).unwrap_or_default())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
