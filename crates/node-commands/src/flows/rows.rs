//! Flows and events with the names of their ends, as documents and as text.

use std::{borrow::Cow, net::IpAddr, time::Duration};

use flannel_common::abi::kernel_drop::KernelDrop;
use flannel_document::Document;
#[cfg(any(test, feature = "schema"))]
use flannel_flows::events::{Direction, FlowEventKind};
use flannel_flows::{
    events::{FlowEvent, PacketOutcome},
    monitor::DeviceNames,
    rows::{FlowWay, seconds},
};
use flannel_names::{AddressKind, ResolvedNames};
use flannel_terminal::{table, wrap};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::maps::NamedFlow;

#[cfg(any(test, feature = "schema"))]
flannel_json_schema::names! {
    /// The kind of an address.
    AddressKindName: AddressKind::ALL.map(AddressKind::name);
    /// The kind of an event of a flow.
    FlowEventName: FlowEventKind::ALL.map(FlowEventKind::name);
    /// The reason for which the kernel drops a packet.
    KernelDropName: KernelDrop::ALL.map(KernelDrop::name);
    /// The direction of a flow, seen from the pods of the node.
    TrafficDirectionName: [Direction::Ingress, Direction::Egress].map(Direction::name);
}

/// One end of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct EndRow {
    /// The address.
    pub address: IpAddr,
    /// The port; absent for protocols without ports.
    pub(super) port: Option<u16>,
    /// The kind of the address: `pod`, `host` (this node), `node` (another one), `service` or
    /// `outside`.
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "AddressKindName"))]
    pub(super) kind: AddressKind,
    /// The pod that has the address, as namespace/name; absent if it is not known.
    pub pod: Option<String>,
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
        let flannel_names::AddressNames {
            kind,
            pod,
            node,
            service,
            host,
        } = names;
        Self {
            address,
            port,
            kind,
            pod,
            node,
            service,
            host,
        }
    }

    /// Adds the names that another node knows of the same address.
    pub fn complete(&mut self, other: &Self) {
        for (known, name) in [
            (&mut self.pod, &other.pod),
            (&mut self.node, &other.node),
            (&mut self.service, &other.service),
            (&mut self.host, &other.host),
        ] {
            *known = known.take().or_else(|| name.clone());
        }
    }

    /// The name with the port, or the address with it.
    pub(super) fn text(&self) -> String {
        let node = self
            .node
            .as_ref()
            .filter(|_| matches!(self.kind, AddressKind::Host | AddressKind::Node));
        let name = self
            .pod
            .as_ref()
            .or(self.service.as_ref())
            .or(node)
            .or(self.host.as_ref());
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
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct FlowsDocument {
    /// The flows that mode `fast` has learned, the busiest first.
    pub flows: Vec<ListedFlow>,
    /// The number of flows that `--rows` left out.
    #[serde(default)]
    pub left_out: usize,
}

impl Document for FlowsDocument {
    const NAME: &'static str = "flows";
}

/// A flow with the names of its ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ListedFlow {
    /// The flow.
    #[serde(flatten)]
    pub flow: NamedFlow,
    /// The sender, as packets come in.
    pub from: EndRow,
    /// The receiver, as packets come in: the Service, if there is one.
    pub to: EndRow,
    /// The sender, as packets leave.
    pub out_from: EndRow,
    /// The receiver, as packets leave: the backend of the Service, if there is one.
    pub out_to: EndRow,
}

impl ListedFlow {
    pub(super) fn new(flow: NamedFlow, names: &ResolvedNames) -> Self {
        let row = &flow.flow;
        let [from, to, out_from, out_to] = [
            row.source,
            row.destination,
            row.out_source,
            row.out_destination,
        ]
        .map(|end| EndRow::new(end.ip(), Some(end.port()), names));
        Self {
            flow,
            from,
            to,
            out_from,
            out_to,
        }
    }

    /// Its ends.
    pub const fn ends(&self) -> [&EndRow; 4] {
        [&self.from, &self.to, &self.out_from, &self.out_to]
    }

    /// Its ends, to be changed.
    pub const fn ends_mut(&mut self) -> [&mut EndRow; 4] {
        [
            &mut self.from,
            &mut self.to,
            &mut self.out_from,
            &mut self.out_to,
        ]
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
        let (way, packets, size, state) =
            (row.way.name(), row.packets, bytes(row.bytes), row.state);
        format!(
            "{way}, {packets} packets, {size}, last {} ago, {state}",
            seconds(row.last_seen_ms)
        )
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

/// A row of the table of flows.
pub struct FlowLine<'a> {
    /// The nodes that know the flow; `None` in the table of one node.
    pub nodes: Option<String>,
    /// The flow.
    pub flow: &'a ListedFlow,
}

impl FlowLine<'_> {
    fn cells(&self) -> Vec<String> {
        self.nodes
            .clone()
            .into_iter()
            .chain(self.flow.cells())
            .collect()
    }

    /// Two lines.
    fn block(&self) -> String {
        let nodes = self
            .nodes
            .as_ref()
            .map(|nodes| format!("{nodes}: "))
            .unwrap_or_default();
        let Self { flow, .. } = self;
        format!(
            "{:<5}  {nodes}{}\n       {}\n",
            flow.flow.flow.protocol,
            flow.route(),
            flow.facts()
        )
    }
}

/// A table, or two lines for each flow on a terminal that is too narrow for it.
pub fn text(lines: &[FlowLine<'_>], columns: Option<usize>) -> String {
    let has_nodes = lines.iter().any(|line| line.nodes.is_some());
    let header = has_nodes.then_some("NODES").into_iter();
    let header = header.chain(["PROTO", "FLOW", "WAY", "PACKETS", "BYTES", "LAST", "STATE"]);
    let header: Vec<_> = header.map(str::to_owned).collect();
    let table = table::render_rows(
        &header,
        &lines.iter().map(FlowLine::cells).collect::<Vec<_>>(),
    );
    let widest = table
        .lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or_default();
    if columns.is_none_or(|columns| widest <= columns) {
        return table;
    }
    wrap::to_terminal(lines.iter().map(FlowLine::block).collect())
}

/// The line below a table from which flows were left out.
pub fn remark(left_out: usize) -> String {
    if left_out == 0 {
        String::new()
    } else {
        format!("{left_out} more, which --rows leaves out\n")
    }
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

// The names are owned when they are read: those that only a newer agent has stay as they are.
/// An event of a flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct FlowEventRow {
    /// The time, in UTC with nanoseconds, in the form of [RFC
    /// 3339](https://www.rfc-editor.org/rfc/rfc3339).
    time: String,
    /// The kind of the event: `new`, `active`, `ended` or `dropped`.
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "FlowEventName"))]
    event: Cow<'static, str>,
    /// The program that saw the packet; absent for a flow of mode `fast`, whose packets are
    /// replayed.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "Option<flannel_json_schema::types::ProgramName>")
    )]
    program: Option<Cow<'static, str>>,
    /// The reason of its verdict; absent likewise.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "Option<flannel_json_schema::types::ReasonName>")
    )]
    reason: Option<Cow<'static, str>>,
    /// The reason for which the kernel dropped the packet, such as `netfilter_drop`; absent for
    /// others.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "Option<KernelDropName>")
    )]
    kernel_drop: Option<Cow<'static, str>>,
    /// The direction, seen from the pods of this node: `ingress` or `egress`.
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "TrafficDirectionName"))]
    direction: Cow<'static, str>,
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
        let (program, kernel_drop) = match event.outcome {
            Some(PacketOutcome::Program(program, reason)) => (Some((program, reason)), None),
            Some(PacketOutcome::Kernel(reason)) => (None, Some(reason)),
            None => (None, None),
        };
        let out = |at| {
            event
                .translated
                .map(|(addresses, ports)| end(at, addresses, Some(ports)))
        };
        Self {
            time: rfc3339(event.time),
            event: event.kind.name().into(),
            program: program.map(|(program, _)| program.name().into()),
            reason: program.map(|(_, reason)| reason.name().into()),
            kernel_drop: kernel_drop.map(KernelDrop::name).map(Cow::Borrowed),
            direction: event.direction.name().into(),
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
        [&self.from, &self.to]
            .into_iter()
            .chain(&self.out_from)
            .chain(&self.out_to)
            .collect()
    }

    /// One line, whose last cell goes on in its column on a narrow terminal.
    pub fn text(&self) -> String {
        let backend = self
            .out_to
            .as_ref()
            .filter(|out| out.address != self.to.address);
        let backend = backend
            .map(|out| format!(" ({})", out.text()))
            .unwrap_or_default();
        let of_kernel = self
            .kernel_drop
            .as_deref()
            .map(|reason| (reason, "the kernel"));
        let outcome = of_kernel.or(self.reason.as_deref().zip(self.program.as_deref()));
        let fate = match (outcome, self.way) {
            (Some((reason, place)), _) => format!("{reason} at {place}"),
            (None, Some(way)) => format!(
                "replayed to {}, {} packets, {}",
                way.name(),
                self.packets,
                bytes(self.bytes)
            ),
            (None, None) => String::new(),
        };
        let of_day = self.time.get(11..23).unwrap_or_default();
        let (event, protocol) = (&self.event, &self.protocol);
        format!(
            "{of_day}  {event:<7}  {protocol:<5}  {} -> {}{backend}, {fate}\n",
            self.from.text(),
            self.to.text()
        )
    }
}

fn rfc3339(time: Duration) -> String {
    let nanoseconds = i128::try_from(time.as_nanos()).unwrap_or_default();
    format!(
        "{:.9}",
        Timestamp::from_nanosecond(nanoseconds).unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_are_those_of_the_types() {
        flannel_json_schema::check::<FlowsDocument>(
            FlowsDocument::NAME,
            FlowsDocument::SCHEMA_VERSION,
        );
        flannel_json_schema::check::<FlowEventRow>(
            FlowEventRow::NAME,
            FlowEventRow::SCHEMA_VERSION,
        );
    }

    #[test]
    fn bytes_have_a_unit_and_one_decimal() {
        let texts = [0, 999, 1000, 999_949, 1_000_000, 1_250_000_000, u64::MAX].map(bytes);
        assert_eq!(
            texts,
            [
                "0 B",
                "999 B",
                "1.0 kB",
                "999.9 kB",
                "1.0 MB",
                "1.2 GB",
                "18446.7 PB"
            ]
        );
    }
}
