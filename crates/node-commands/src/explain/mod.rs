//! `flannel-agent explain`: the story of a packet, for people at three in the morning.

mod trace;

use std::{fmt::Write as _, net::IpAddr, time::Duration};

use anyhow::Context as _;
use clap::Args;
use flannel_command::{Answer, NoResult, PinOptions, PrintOptions, StateOptions};
use flannel_explain::{
    AgentPlaces, ExplainDocument, Question, StepRow, StepState, Transport, explain,
};
use flannel_observe::socket::ask_status;
use flannel_terminal::color::Paint;

/// The longest trace.
const MOST_SECONDS: u64 = 60;

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
    #[command(flatten)]
    packet: PacketOptions,
    #[command(flatten)]
    trace: TraceOptions,
    #[command(flatten)]
    print: PrintOptions,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// The trace of the packets.
#[derive(Clone, Copy, Debug, Args)]
pub struct TraceOptions {
    /// Trace the packets of this flow through the rules of nf_tables for this many seconds, at most
    /// 60, and show which rule drops them; needs root and Linux 5.12
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=MOST_SECONDS),
    )]
    trace: Option<u64>,
}

impl TraceOptions {
    /// The duration of the trace; `None` if no packet is traced.
    pub fn duration(self) -> Option<Duration> {
        self.trace.map(Duration::from_secs)
    }
}

/// The protocol and the ports of a packet.
#[derive(Clone, Copy, Debug, Args)]
pub struct PacketOptions {
    /// Protocol
    #[arg(long, value_enum, default_value_t)]
    proto: Transport,
    /// Source port; that of the busiest known flow, if any, otherwise
    #[arg(long, value_name = "PORT")]
    sport: Option<u16>,
    /// Destination port, likewise
    #[arg(long, value_name = "PORT")]
    dport: Option<u16>,
}

impl PacketOptions {
    /// The packet between two addresses.
    pub const fn between(self, source: IpAddr, destination: IpAddr) -> Question {
        Question {
            source,
            destination,
            transport: self.proto,
            sport: self.sport,
            dport: self.dport,
        }
    }

    /// Returns the mistake in the options, if there is one: ports of a protocol without any.
    pub fn mistake(self) -> Option<String> {
        let has_port = self.sport.is_some() || self.dport.is_some();
        let is_wrong = self.proto == Transport::Icmp && has_port;
        is_wrong.then(|| "--proto icmp has no ports: leave --sport and --dport out".to_owned())
    }
}

/// Returns the mistake in the question, if there is one: addresses of different families, or ports
/// of a protocol without any.
pub fn mistake(options: &ExplainOptions) -> Option<String> {
    let ExplainOptions {
        source,
        destination,
        packet,
        ..
    } = options;
    let differ = source.is_ipv4() != destination.is_ipv4();
    let families =
        || differ.then(|| format!("{source} and {destination} are of different families"));
    packet.mistake().or_else(families)
}

/// Runs the command.
pub async fn run(options: &ExplainOptions) -> anyhow::Result<Answer> {
    let question = options.packet.between(options.source, options.destination);
    // Without an agent there is less to say, and still enough.
    let status = ask_status(&options.state.state_dir).await.ok();
    let pins = options.pins.root_of(status.as_ref());
    let places = AgentPlaces {
        pins: &pins,
        state_dir: &options.state.state_dir,
    };
    let trace = match options.trace.duration() {
        Some(duration) => Some(trace::run(&question, &pins, duration).await?),
        None => None,
    };
    let report = Box::pin(explain(question, places, status, trace))
        .await
        .context("cannot ask the kernel")?;
    let document = ExplainDocument::new(&question, report);
    let text = options
        .print
        .print(&document, |paint| text(&document, paint));
    Ok(Answer {
        text,
        code: code(document.verdict.reaches),
    })
}

/// The exit code of a verdict.
pub const fn code(reaches: Option<bool>) -> u8 {
    match reaches {
        Some(true) => 0,
        Some(false) => 1,
        None => NoResult::CODE,
    }
}

fn text(document: &ExplainDocument, paint: Paint) -> String {
    let verdict = &document.verdict;
    let story = story(document, paint);
    format!(
        "{story}\n{}: {}\n",
        outcome(verdict.reaches, paint),
        verdict.text
    )
}

/// The steps, and the trace if there is one.
pub fn story(document: &ExplainDocument, paint: Paint) -> String {
    let trace = document
        .trace
        .as_ref()
        .map(|report| format!("\n{}", trace::text(report, paint)))
        .unwrap_or_default();
    steps(&document.steps, paint) + &trace
}

/// The numbered steps, a line for each.
fn steps(steps: &[StepRow], paint: Paint) -> String {
    let mut out = String::new();
    for (number, step) in (1..).zip(steps) {
        let state = match step.state {
            StepState::Ok => paint.good("ok  "),
            StepState::Warn => paint.warn("warn"),
            StepState::Unknown => paint.warn("?   "),
            StepState::Fail => paint.bad("FAIL"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{number:>2}. {state}  {:<13}{}", step.topic, step.text);
    }
    out
}

/// A verdict in one word.
pub fn outcome(reaches: Option<bool>, paint: Paint) -> String {
    match reaches {
        Some(true) => paint.good("reaches"),
        Some(false) => paint.bad("lost"),
        None => paint.warn("unknown"),
    }
}
