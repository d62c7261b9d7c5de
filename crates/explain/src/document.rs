//! An explanation as a document for programs: written by the command on one node, and read by the
//! one that asks several nodes. The names are an interface.

use std::net::IpAddr;

use flannel_document::Document;
use serde::{Deserialize, Serialize};

use super::{
    question::Question,
    report::{Conclusion, PacketWay, Report, Step, StepState},
    trace::TraceReport,
    tried::Tried,
};
#[cfg(any(test, feature = "schema"))]
use crate::Transport;

/// The document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ExplainDocument {
    /// The sender, before any translation.
    pub source: IpAddr,
    /// The address it sends to.
    pub destination: IpAddr,
    /// `tcp`, `udp` or `icmp`.
    #[cfg_attr(any(test, feature = "schema"), schemars(schema_with = "protocol_name"))]
    pub protocol: String,
    /// The findings, in the order of the packet's way.
    pub steps: Vec<StepRow>,
    /// The verdicts of the programs.
    pub programs: Vec<ProgramRow>,
    /// The packets of the flow on their way through netfilter; `null` unless they were traced.
    pub trace: Option<TraceReport>,
    /// The outcome for the packet.
    pub verdict: VerdictRow,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StepRow {
    /// The topic, such as `route` or `underlay`.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "super::report::topics::Topic")
    )]
    pub topic: String,
    /// The state.
    pub state: StepState,
    /// The finding, and the remedy where it is not as it should be.
    pub text: String,
}

/// The verdict of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ProgramRow {
    /// The program.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::ProgramName")
    )]
    pub program: String,
    /// The device on which the packet meets it.
    pub device: String,
    /// True if the program is on that device.
    pub attached: bool,
    /// The reasons for the verdict.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "Vec<flannel_json_schema::types::ReasonName>")
    )]
    pub reasons: Vec<String>,
    /// True if the attached program is of another build than the one that was tried.
    pub other_build: bool,
}

/// The end of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct VerdictRow {
    /// True if the packet gets through this node's part of its way; `null` if that is not known.
    pub reaches: Option<bool>,
    /// The way of the packet, such as `fast` or `kernel`.
    pub way: PacketWay,
    /// The same in words.
    pub text: String,
}

impl Document for ExplainDocument {
    const NAME: &'static str = "explain";
}

/// The names of the protocols of a question, as a schema.
#[cfg(any(test, feature = "schema"))]
pub fn protocol_name(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    flannel_json_schema::name(
        [Transport::Tcp, Transport::Udp, Transport::Icmp].map(Transport::name),
    )
}

impl ExplainDocument {
    /// The document of a report on this packet.
    pub fn new(question: &Question, report: Report) -> Self {
        Self {
            source: question.source,
            destination: question.destination,
            protocol: question.transport.name().to_owned(),
            steps: report.steps.into_iter().map(StepRow::from).collect(),
            programs: report.programs.into_iter().map(ProgramRow::from).collect(),
            trace: report.trace,
            verdict: report.verdict.into(),
        }
    }
}

impl From<Step> for StepRow {
    fn from(step: Step) -> Self {
        Self {
            topic: step.topic.to_owned(),
            state: step.state,
            text: step.text,
        }
    }
}

impl From<Tried> for ProgramRow {
    fn from(tried: Tried) -> Self {
        Self {
            program: tried.program.name().to_owned(),
            device: tried.device,
            attached: tried.attached,
            reasons: tried
                .reasons
                .iter()
                .map(|reason| reason.name().to_owned())
                .collect(),
            other_build: tried.other_build,
        }
    }
}

impl From<Conclusion> for VerdictRow {
    fn from(verdict: Conclusion) -> Self {
        Self {
            reaches: verdict.reaches,
            way: verdict.way,
            text: verdict.text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_types() {
        flannel_json_schema::check::<ExplainDocument>(
            ExplainDocument::NAME,
            ExplainDocument::SCHEMA_VERSION,
        );
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let [source, destination] =
            ["10.244.1.5", "10.244.2.7"].map(|text| text.parse().expect("an address"));
        let question = Question {
            source,
            destination,
            transport: Transport::Udp,
            sport: None,
            dport: Some(53),
        };
        let step = Step {
            topic: "route",
            state: StepState::Warn,
            text: "by cni0".to_owned(),
        };
        let verdict = Conclusion {
            reaches: None,
            way: PacketWay::Kernel,
            text: "not known".to_owned(),
        };
        let document = ExplainDocument::new(
            &question,
            Report {
                steps: vec![step],
                programs: Vec::new(),
                trace: None,
                verdict,
            },
        );
        let text = serde_json::to_string(&document).expect("JSON");
        assert!(
            text.contains(
                r#""protocol":"udp","steps":[{"topic":"route","state":"warn","text":"by cni0"}]"#
            ),
            "{text}"
        );
        assert!(
            text.contains(r#""verdict":{"reaches":null,"way":"kernel","text":"not known"}"#),
            "{text}"
        );
        assert_eq!(
            serde_json::from_str::<ExplainDocument>(&text).expect("a document"),
            document
        );
    }
}
