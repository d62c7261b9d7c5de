//! The flows that mode `fast` has learned, of both families, in one table.

use std::net::IpAddr;

use clap::{Args, ValueEnum};
use flannel_command::prefix;
use flannel_flows::{
    monitor::DeviceNames,
    rows::{FlowRow, seconds},
};
use flannel_terminal::table;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::peers::device;

/// The flows to show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[group(skip)]
pub struct FlowFilter {
    /// Flows from this address or prefix, before or after translation
    #[arg(long, value_name = "ADDR", value_parser = prefix::parse)]
    src: Option<IpNet>,
    /// Flows to this address or prefix, before or after translation
    #[arg(long, value_name = "ADDR", value_parser = prefix::parse)]
    dst: Option<IpNet>,
    /// Flows of this protocol
    #[arg(long, value_enum)]
    proto: Option<Transport>,
}

/// A protocol whose flows are learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// TCP
    Tcp,
    /// UDP
    Udp,
}

impl FlowFilter {
    /// Returns true if it excludes any flow.
    pub const fn is_set(&self) -> bool {
        self.src.is_some() || self.dst.is_some() || self.proto.is_some()
    }

    /// The flags that make the same filter.
    pub fn flags(&self) -> impl Iterator<Item = String> {
        let proto = self.proto.and_then(|proto| proto.to_possible_value());
        let src = self.src.map(|prefix| format!("--src={prefix}"));
        let dst = self.dst.map(|prefix| format!("--dst={prefix}"));
        src.into_iter()
            .chain(dst)
            .chain(proto.map(|proto| format!("--proto={}", proto.get_name())))
    }

    /// Returns true if the flow matches the filter.
    pub fn takes(&self, row: &FlowRow) -> bool {
        self.takes_ends(
            row.protocol,
            [row.source.ip(), row.destination.ip()],
            [row.out_source.ip(), row.out_destination.ip()],
        )
    }

    /// Returns true if a flow of this protocol between these addresses, before and after
    /// translation, matches the filter.
    pub fn takes_ends(&self, protocol: &str, before: [IpAddr; 2], after: [IpAddr; 2]) -> bool {
        let lies_in = |wanted: Option<IpNet>, before: IpAddr, after: IpAddr| {
            wanted.is_none_or(|wanted| wanted.contains(&before) || wanted.contains(&after))
        };
        let is_wanted = |wanted| {
            protocol
                == if wanted == Transport::Tcp {
                    "tcp"
                } else {
                    "udp"
                }
        };
        self.proto.is_none_or(is_wanted)
            && lies_in(self.src, before[0], after[0])
            && lies_in(self.dst, before[1], after[1])
    }
}

/// A flow, and the names of its devices.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NamedFlow {
    /// The flow.
    #[serde(flatten)]
    pub flow: FlowRow,
    /// Name of the device by which packets come in; absent if it is gone.
    device_name: Option<String>,
    /// Name of the device by which packets leave; absent if it is gone.
    out_device_name: Option<String>,
}

impl NamedFlow {
    /// The flow with the names that its devices have now.
    pub fn new(flow: FlowRow, devices: &mut DeviceNames) -> Self {
        let [device_name, out_device_name] =
            [flow.device, flow.out_device].map(|index| devices.get(index).map(str::to_owned));
        Self {
            flow,
            device_name,
            out_device_name,
        }
    }
}

pub(super) fn table(rows: &[NamedFlow]) -> String {
    let header = [
        "PROTO",
        "FROM",
        "TO",
        "IN",
        "LEAVES-FROM",
        "LEAVES-TO",
        "WAY",
        "OUT",
        "PACKETS",
        "BYTES",
        "FIRST",
        "LAST",
        "AGE",
        "EXPIRES",
        "STATE",
    ];
    table::render(header, &rows.iter().map(cells).collect::<Vec<_>>())
}

fn cells(named: &NamedFlow) -> [String; 15] {
    let row = &named.flow;
    let out = |before: String, after: String| {
        if before == after {
            "=".to_owned()
        } else {
            after
        }
    };
    let time = |milliseconds: Option<i64>| milliseconds.map_or_else(|| "-".to_owned(), seconds);
    [
        row.protocol.to_owned(),
        row.source.to_string(),
        row.destination.to_string(),
        device(row.device, named.device_name.as_ref()),
        out(row.source.to_string(), row.out_source.to_string()),
        out(row.destination.to_string(), row.out_destination.to_string()),
        row.way.name().to_owned(),
        device(row.out_device, named.out_device_name.as_ref()),
        row.packets.to_string(),
        row.bytes.to_string(),
        seconds(row.first_seen_ms),
        seconds(row.last_seen_ms),
        time(row.age_ms),
        time(row.expires_in_ms.filter(|left| *left > 0)),
        row.why.as_ref().map_or_else(
            || row.state.to_owned(),
            |why| format!("{}: {why}", row.state),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use flannel_flows::rows::FlowWay;

    use super::*;

    fn row() -> FlowRow {
        let end = |text: &str| text.parse().expect("an address and a port");
        FlowRow {
            protocol: "tcp",
            source: end("10.244.1.5:40000"),
            destination: end("10.96.0.1:80"),
            device: 3,
            out_source: end("10.244.1.5:40000"),
            out_destination: end("10.244.2.2:8080"),
            out_device: 4,
            way: FlowWay::Tunnel,
            packets: 12,
            bytes: 12_000,
            first_seen_ms: 4_500,
            last_seen_ms: 100,
            age_ms: Some(400),
            expires_in_ms: Some(1_600),
            mirror_expires_in_ms: None,
            needs_mirror: true,
            mtu: 1450,
            tos: 0,
            ttl: 64,
            flow_label: 0,
            state: "reverse_missing",
            why: Some("its way back was not seen".to_owned()),
            generation: 1,
        }
    }

    #[test]
    fn a_flow_is_found_by_either_of_its_ends() {
        let takes = |src: Option<&str>, dst: Option<&str>, proto| {
            let prefix = |text: &str| prefix::parse(text).expect("a prefix");
            FlowFilter {
                src: src.map(prefix),
                dst: dst.map(prefix),
                proto,
            }
            .takes(&row())
        };
        assert!(takes(None, None, None));
        assert!(
            takes(Some("10.244.1.5"), Some("10.96.0.1"), Some(Transport::Tcp)),
            "as it comes in"
        );
        assert!(
            takes(Some("10.244.1.0/24"), Some("10.244.2.2"), None),
            "as it leaves"
        );
        assert!(!takes(Some("10.96.0.1"), None, None), "the other way round");
        assert!(!takes(None, None, Some(Transport::Udp)));
        assert!(prefix::parse("10.244.1").is_err());
    }

    #[test]
    fn an_end_that_is_not_translated_is_a_sign() {
        let named = NamedFlow {
            flow: row(),
            device_name: Some("veth1".to_owned()),
            out_device_name: None,
        };
        let cells = cells(&named);
        assert_eq!((cells[3].as_str(), cells[7].as_str()), ("veth1 (3)", "4"));
        assert_eq!(cells[4..6], ["=".to_owned(), "10.244.2.2:8080".to_owned()]);
        assert_eq!(cells[8..12], ["12", "12000", "4.5 s", "0.1 s"]);
        assert_eq!(
            cells[12..],
            [
                "0.4 s",
                "1.6 s",
                "reverse_missing: its way back was not seen"
            ]
        );
    }
}
