//! `flannel-agent explain`: the story of a packet, for people at three in the morning.

use std::{fmt::Write as _, net::IpAddr};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use flannel_terminal::color::Paint;
use serde::Serialize;

use super::{Answer, NoResult, PinOptions, PrintOptions, StateOptions};
use crate::{
    document::Document,
    explain::{AgentPlaces, Conclusion, Question, Report, Step, StepState, Transport, Tried, explain},
    observe::socket::ask_status,
};

/// The packet to explain, the output format, the colours, and the paths of the agent's state and
/// pins.
#[derive(Debug, Args)]
pub struct ExplainOptions {
    /// Address of the sender, before any translation
    #[arg(value_name = "SRC")]
    source: IpAddr,
    /// Address it sends to
    #[arg(value_name = "DST")]
    destination: IpAddr,
    /// Protocol
    #[arg(long, value_enum, default_value_t = Protocol::Tcp)]
    proto: Protocol,
    /// Source port; that of the busiest known flow, if any, otherwise
    #[arg(long, value_name = "PORT")]
    sport: Option<u16>,
    /// Destination port, likewise
    #[arg(long, value_name = "PORT")]
    dport: Option<u16>,
    #[command(flatten)]
    print: PrintOptions,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// An ICMP echo request, as ping sends it; without ports
    Icmp,
}

/// The story of a packet.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ExplainDocument<'a> {
    /// Address of the sender, before any translation.
    source: IpAddr,
    /// Address it sends to.
    destination: IpAddr,
    /// `tcp`, `udp` or `icmp`.
    #[cfg_attr(test, schemars(schema_with = "protocol_name"))]
    protocol: &'static str,
    /// The steps, in the order of the packet's way.
    steps: &'a [Step],
    /// The verdicts of the programs that were tried on the packet.
    programs: Vec<ProgramRow<'a>>,
    /// The outcome for the packet.
    verdict: &'a Conclusion,
}

impl Document for ExplainDocument<'_> {
    const NAME: &'static str = "explain";
}

#[cfg(test)]
fn protocol_name(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    flannel_json_schema::name([Transport::Tcp, Transport::Udp, Transport::Icmp].map(Transport::name))
}

/// The verdict of a program on the packet.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProgramRow<'a> {
    /// The program.
    #[cfg_attr(test, schemars(with = "crate::schema::ProgramName"))]
    program: &'static str,
    /// The device on which the packet meets it.
    device: &'a str,
    /// True if the program is on that device; otherwise the packet does not meet it.
    attached: bool,
    /// The reasons for its verdict.
    #[cfg_attr(test, schemars(with = "Vec<crate::schema::ReasonName>"))]
    reasons: Vec<&'static str>,
    /// True if the attached program is of another build than the one that was tried.
    other_build: bool,
}

/// Returns the mistake in the question, if there is one: addresses of different families, or ports
/// of a protocol without any.
pub(super) fn mistake(options: &ExplainOptions) -> Option<String> {
    let ExplainOptions { source, destination, proto, sport, dport, .. } = options;
    if matches!(proto, Protocol::Icmp) && (sport.is_some() || dport.is_some()) {
        return Some("--proto icmp has no ports: leave --sport and --dport out".to_owned());
    }
    let differ = source.is_ipv4() != destination.is_ipv4();
    differ.then(|| format!("{source} and {destination} are of different families"))
}

/// Runs the command.
pub(super) async fn run(options: &ExplainOptions) -> anyhow::Result<Answer> {
    let transport = match options.proto {
        Protocol::Tcp => Transport::Tcp,
        Protocol::Udp => Transport::Udp,
        Protocol::Icmp => Transport::Icmp,
    };
    let ExplainOptions { source, destination, sport, dport, .. } = *options;
    let question = Question { source, destination, transport, sport, dport };
    // Without an agent there is less to say, and still enough.
    let status = ask_status(&options.state.state_dir).await.ok();
    let pins = options.pins.root_of(status.as_ref());
    let places = AgentPlaces { pins: &pins, state_dir: &options.state.state_dir };
    let story = explain(question, places, status).await.context("cannot ask the kernel")?;
    let text = options.print.print(&document(&question, &story), |paint| text(&story, paint));
    let code = match story.verdict.reaches {
        Some(true) => 0,
        Some(false) => 1,
        None => NoResult::CODE,
    };
    Ok(Answer { text, code })
}

fn document<'a>(question: &Question, story: &'a Report) -> ExplainDocument<'a> {
    let row = |tried: &'a Tried| ProgramRow {
        program: tried.program.name(),
        device: &tried.device,
        attached: tried.attached,
        reasons: tried.reasons.iter().map(|reason| reason.name()).collect(),
        other_build: tried.other_build,
    };
    ExplainDocument {
        source: question.source,
        destination: question.destination,
        protocol: question.transport.name(),
        steps: &story.steps,
        programs: story.programs.iter().map(row).collect(),
        verdict: &story.verdict,
    }
}

fn text(story: &Report, paint: Paint) -> String {
    let mut out = String::new();
    for (number, step) in (1..).zip(&story.steps) {
        let state = match step.state {
            StepState::Ok => paint.good("ok  "),
            StepState::Warn => paint.warn("warn"),
            StepState::Unknown => paint.warn("?   "),
            StepState::Fail => paint.bad("FAIL"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{number:>2}. {state}  {:<13}{}", step.topic, step.text);
    }
    let outcome = match story.verdict.reaches {
        Some(true) => paint.good("reaches"),
        Some(false) => paint.bad("lost"),
        None => paint.warn("unknown"),
    };
    let _ = writeln!(out, "\n{outcome}: {}", story.verdict.text);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_types() {
        flannel_json_schema::check::<ExplainDocument<'_>>(ExplainDocument::NAME, ExplainDocument::SCHEMA_VERSION);
    }
}
