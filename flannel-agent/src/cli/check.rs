//! `flannel-agent check`: what this host can do, before and after the agent is installed.

use anyhow::Context as _;
use clap::Args;

use super::{Answer, Output, PinOptions, StateOptions, json};
use crate::check::{self, CheckReport, Finding, Level};

/// The output format, and the paths at which an agent's pins and state may be.
#[derive(Debug, Args)]
pub struct CheckOptions {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    pins: PinOptions,
    #[command(flatten)]
    state: StateOptions,
}

/// Runs the command.
pub(super) async fn run(options: &CheckOptions) -> anyhow::Result<Answer> {
    let report = check::run(&options.pins.root(), &options.state.state_dir).await.context("cannot ask the kernel")?;
    let text = if options.output.is_json() { json(&report) } else { text(&report) };
    Ok(Answer { text, code: u8::from(report.has_failed()) })
}

fn text(report: &CheckReport) -> String {
    let lines: String = report.findings.iter().map(line).collect();
    let why = report.best.reason.as_ref().map(|reason| format!(", not more because {reason}")).unwrap_or_default();
    format!("{lines}\nthis node can do mode {}{why}\n", report.best.mode)
}

fn line(finding: &Finding) -> String {
    let level = match finding.level {
        Level::Ok => "ok",
        Level::Warn => "warn",
        Level::Fail => "FAIL",
    };
    let remedy = finding.remedy.as_ref().map(|remedy| format!("\n{:22}-> {remedy}", "")).unwrap_or_default();
    format!("{level:<6}{:<16}{}{remedy}\n", finding.topic, finding.text)
}
