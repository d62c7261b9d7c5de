//! Flows and events with the names of their ends, as documents and as text.

use std::{net::IpAddr, time::Duration};

use flannel_terminal::{table, wrap};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

#[cfg(test)]
use crate::flow_events::Direction;
use crate::{
    cli::maps::NamedFlow,
    document::Document,
    flow_events::{FlowEvent, FlowEventKind},
    monitor::DeviceNames,
    names::{AddressKind, ResolvedNames},
    observe::flows::{FlowWay, seconds},
};

#[cfg(test)]
flannel_json_schema::names! {
    /// The kind of an address.
    AddressKindName: AddressKind::ALL.map(AddressKind::name);
    /// The kind of an event of a flow.
    FlowEventName: FlowEventKind::ALL.map(FlowEventKind::name);
    /// The direction of a flow, seen from the pods of the node.
    TrafficDirectionName: [Direction::Ingress, Direction::Egress].map(Direction::name);
}

/// One end of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EndRow {
    /// The address.
    pub(super) address: IpAddr,
    /// The port; absent for protocols without ports.
    pub(super) port: Option<u16>,
    /// The kind of the address: `pod`, `host` (this node), `node` (another one), `service` or
    /// `outside`.
    #[cfg_attr(test, schemars(with = "AddressKindName"))]
    pub(super) kind: AddressKind,
    /// The pod that has the address, as namespace/name; absent if it is not known.
    pub(super) pod: Option<String>,
    /// The node that has the address, or whose pod has it; absent if it is not known.
    pub(super) node: Option<String>,
    /// The Service that has the address, as namespace/name; absent if there is none.
    pub(super) service: Option<String>,
    /// The host outside that has the address, by the file of `--hosts-file`; absent if it is not
    /// known.
    pub(super) host: Option<String>,
}

impl EndRow {
    pub(super) fn new(address: IpAddr, port: Option<u16>, names: &ResolvedNames) -> Self {
        let names = names.get(&address).cloned().unwrap_or_default();
        let crate::names::AddressNames { kind, pod, node, service, host } = names;
        Self { address, port, kind, pod, node, service, host }
    }

    /// The name with the port, or the address with it.
    pub(super) fn text(&self) -> String {
        let node = self.node.as_ref().filter(|_| matches!(self.kind, AddressKind::Host | AddressKind::Node));
        let name = self.pod.as_ref().or(self.service.as_ref()).or(node).or(self.host.as_ref());
        match (name, self.port, self.address) {
            (Some(name), Some(port), _) => format!("{name}:{port}"),
            (Some(name), None, _) => name.clone(),
            (None, Some(port), IpAddr::V6(address)) => format!("[{address}]:{port}"),
            (None, Some(port), IpAddr::V4(address)) => format!("{address}:{port}"),
            (None, None, address) => address.to_string(),
        }
    }
}

/// The flows of the node.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FlowsDocument {
    /// The flows that mode `fast` has learned, the busiest first.
    pub(super) flows: Vec<ListedFlow>,
}

impl Document for FlowsDocument {
    const NAME: &'static str = "flows";
}

/// A flow with the names of its ends.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ListedFlow {
    #[serde(flatten)]
    pub(super) flow: NamedFlow,
    /// The sender, as packets come in.
    pub(super) from: EndRow,
    /// The receiver, as packets come in: the Service, if there is one.
    pub(super) to: EndRow,
    /// The sender, as packets leave.
    pub(super) out_from: EndRow,
    /// The receiver, as packets leave: the backend of the Service, if there is one.
    pub(super) out_to: EndRow,
}

impl ListedFlow {
    pub(super) fn new(flow: NamedFlow, names: &ResolvedNames) -> Self {
        let row = &flow.flow;
        let [from, to, out_from, out_to] = [row.source, row.destination, row.out_source, row.out_destination]
            .map(|end| EndRow::new(end.ip(), Some(end.port()), names));
        Self { flow, from, to, out_from, out_to }
    }

    pub(super) const fn ends(&self) -> [&EndRow; 4] {
        [&self.from, &self.to, &self.out_from, &self.out_to]
    }

    /// The ends, with the backend of a translated destination.
    fn route(&self) -> String {
        let to = if self.to.address == self.out_to.address && self.to.port == self.out_to.port {
            self.to.text()
        } else {
            format!("{} ({})", self.to.text(), self.out_to.text())
        };
        format!("{} -> {to}", self.from.text())
    }

    fn facts(&self) -> String {
        let row = &self.flow.flow;
        let (way, packets, size, state) = (row.way.name(), row.packets, bytes(row.bytes), row.state);
        format!("{way}, {packets} packets, {size}, last {} ago, {state}", seconds(row.last_seen_ms))
    }

    fn cells(&self) -> [String; 7] {
        let row = &self.flow.flow;
        [
            row.protocol.to_owned(),
            self.route(),
            row.way.name().to_owned(),
            row.packets.to_string(),
            bytes(row.bytes),
            seconds(row.last_seen_ms),
            row.state.to_owned(),
        ]
    }
}

/// A table, or two lines for each flow on a terminal that is too narrow for it.
pub(super) fn text(flows: &[ListedFlow], columns: Option<usize>) -> String {
    let rows: Vec<_> = flows.iter().map(ListedFlow::cells).collect();
    let table = table::render(["PROTO", "FLOW", "WAY", "PACKETS", "BYTES", "LAST", "STATE"], &rows);
    let widest = table.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    if columns.is_none_or(|columns| widest <= columns) {
        return table;
    }
    let block =
        |flow: &ListedFlow| format!("{:<5}  {}\n       {}\n", flow.flow.flow.protocol, flow.route(), flow.facts());
    wrap::to_terminal(flows.iter().map(block).collect())
}

/// Bytes as people read them.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let (mut tenths, mut unit) = (count / 100, 0);
    while tenths >= 10_000 && unit + 1 < UNITS.len() {
        (tenths, unit) = (tenths / 1000, unit + 1);
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// An event of a flow.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FlowEventRow {
    /// The time, in UTC with nanoseconds, in the form of [RFC
    /// 3339](https://www.rfc-editor.org/rfc/rfc3339).
    time: String,
    /// The kind of the event: `new`, `active`, `ended` or `dropped`.
    #[cfg_attr(test, schemars(with = "FlowEventName"))]
    event: &'static str,
    /// The program that saw the packet; absent for a flow of mode `fast`, whose packets are
    /// replayed.
    #[cfg_attr(test, schemars(with = "Option<crate::schema::ProgramName>"))]
    program: Option<&'static str>,
    /// The reason of its verdict; absent likewise.
    #[cfg_attr(test, schemars(with = "Option<crate::schema::ReasonName>"))]
    reason: Option<&'static str>,
    /// The direction, seen from the pods of this node: `ingress` or `egress`.
    #[cfg_attr(test, schemars(with = "TrafficDirectionName"))]
    direction: &'static str,
    /// The protocol of an IP packet, such as `tcp`, or its number.
    protocol: String,
    /// The sender, as packets come in.
    from: EndRow,
    /// The receiver, as packets come in.
    to: EndRow,
    /// The sender, as packets leave; absent if that is not known.
    out_from: Option<EndRow>,
    /// The receiver, as packets leave; absent likewise.
    out_to: Option<EndRow>,
    /// True for packets of the end that answers; absent if that is not known.
    is_reply: Option<bool>,
    /// The way by which packets leave; absent for a packet that is not replayed.
    way: Option<FlowWay>,
    /// Name of the device; absent if it is gone.
    interface: Option<String>,
    /// Index of the device.
    ifindex: u32,
    /// Packets of the flow that were replayed; 1 for a packet that is not.
    packets: u64,
    /// Bytes of these, from the Ethernet header on.
    bytes: u64,
}

impl Document for FlowEventRow {
    const NAME: &'static str = "flow-event";
}

impl FlowEventRow {
    pub(super) fn new(event: &FlowEvent, names: &ResolvedNames, devices: &mut DeviceNames) -> Self {
        let end = |at: usize, addresses: [IpAddr; 2], ports: Option<[u16; 2]>| {
            EndRow::new(addresses[at], ports.map(|ports| ports[at]), names)
        };
        let out = |at| event.translated.map(|(addresses, ports)| end(at, addresses, Some(ports)));
        Self {
            time: rfc3339(event.time),
            event: event.kind.name(),
            program: event.outcome.map(|(program, _)| program.name()),
            reason: event.outcome.map(|(_, reason)| reason.name()),
            direction: event.direction.name(),
            protocol: event.protocol_name(),
            from: end(0, event.addresses, event.ports),
            to: end(1, event.addresses, event.ports),
            out_from: out(0),
            out_to: out(1),
            is_reply: event.is_reply(),
            way: event.way,
            interface: devices.get(event.ifindex).map(str::to_owned),
            ifindex: event.ifindex,
            packets: event.packets,
            bytes: event.bytes,
        }
    }

    pub(super) fn ends(&self) -> Vec<&EndRow> {
        [&self.from, &self.to].into_iter().chain(&self.out_from).chain(&self.out_to).collect()
    }

    /// One line, whose last cell goes on in its column on a narrow terminal.
    pub(super) fn text(&self, kind: FlowEventKind) -> String {
        let backend = self.out_to.as_ref().filter(|out| out.address != self.to.address);
        let backend = backend.map(|out| format!(" ({})", out.text())).unwrap_or_default();
        let fate = match (self.reason.zip(self.program), self.way) {
            (Some((reason, program)), _) => format!("{reason} at {program}"),
            (None, Some(way)) => format!("replayed to {}, {} packets, {}", way.name(), self.packets, bytes(self.bytes)),
            (None, None) => String::new(),
        };
        let of_day = self.time.get(11..23).unwrap_or_default();
        let (event, protocol) = (kind.name(), &self.protocol);
        format!("{of_day}  {event:<7}  {protocol:<5}  {} -> {}{backend}, {fate}\n", self.from.text(), self.to.text())
    }
}

fn rfc3339(time: Duration) -> String {
    let nanoseconds = i128::try_from(time.as_nanos()).unwrap_or_default();
    format!("{:.9}", Timestamp::from_nanosecond(nanoseconds).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_are_those_of_the_types() {
        flannel_json_schema::check::<FlowsDocument>(FlowsDocument::NAME, FlowsDocument::SCHEMA_VERSION);
        flannel_json_schema::check::<FlowEventRow>(FlowEventRow::NAME, FlowEventRow::SCHEMA_VERSION);
    }

    #[test]
    fn bytes_have_a_unit_and_one_decimal() {
        let texts = [0, 999, 1000, 999_949, 1_000_000, 1_250_000_000, u64::MAX].map(bytes);
        assert_eq!(texts, ["0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB", "1.2 GB", "18446.7 PB"]);
    }
}
