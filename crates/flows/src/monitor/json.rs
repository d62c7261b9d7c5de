//! One JSON object for each packet, on its own line, for programs.

use std::{fmt::Write as _, net::IpAddr, time::Duration};

use flannel_document::{self as document, Document};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::monitor::{
    EndName, Names, Seen,
    packet::{Packet, PacketAddresses},
};

/// A packet as a program saw it.
#[derive(Debug, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
struct PacketRow<'a> {
    /// The time of the verdict, in UTC with nanoseconds, in the form of [RFC
    /// 3339](https://www.rfc-editor.org/rfc/rfc3339).
    time: String,
    /// The program.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::ProgramName")
    )]
    program: &'static str,
    /// The reason of its verdict.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::ReasonName")
    )]
    reason: &'static str,
    /// The verdict: `pass`, `redirect` or `drop`.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::VerdictName")
    )]
    verdict: &'static str,
    /// Name of the interface; its index where it is gone.
    interface: String,
    /// Index of the interface.
    ifindex: u32,
    /// The direction at the interface: `in` or `out`.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::DirectionName")
    )]
    direction: &'static str,
    /// Bytes of the inner frame.
    length: u32,
    /// Bytes of payload of each segment, of a packet that will be segmented; absent for others.
    gso_size: Option<u32>,
    /// The protocol of an IP packet, such as `tcp`, or its number; absent for other frames.
    protocol: Option<String>,
    /// The source address; absent unless it is an IP packet.
    source: Option<IpAddr>,
    /// The source port; absent for protocols without ports, and for later fragments.
    source_port: Option<u16>,
    /// The destination address; absent unless it is an IP packet.
    destination: Option<IpAddr>,
    /// The destination port; absent for protocols without ports, and for later fragments.
    destination_port: Option<u16>,
    /// Namespace and name of the pod of this node that has the source address; absent if no such
    /// pod is known.
    source_pod: Option<&'a str>,
    /// The pod of the destination address, likewise.
    destination_pod: Option<&'a str>,
    /// Namespace and name of the Service that has the source address; absent if no such Service is
    /// known.
    source_service: Option<&'a str>,
    /// The Service of the destination address, likewise.
    destination_service: Option<&'a str>,
    /// The outer source address; absent for packets without outer headers.
    outer_source: Option<IpAddr>,
    /// The outer destination address; absent for packets without outer headers.
    outer_destination: Option<IpAddr>,
    /// The first bytes of the inner frame, hexadecimal.
    bytes: String,
}

impl Document for PacketRow<'_> {
    const NAME: &'static str = "monitor";
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
    let row = PacketRow {
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
    document::line(&row) + "\n"
}

fn rfc3339(time: Duration) -> String {
    let nanoseconds = i128::try_from(time.as_nanos()).unwrap_or_default();
    format!(
        "{:.9}",
        Timestamp::from_nanosecond(nanoseconds).unwrap_or_default()
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_types() {
        flannel_json_schema::check::<PacketRow<'_>>(PacketRow::NAME, PacketRow::SCHEMA_VERSION);
    }
}
