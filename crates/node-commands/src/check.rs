//! `flannel-agent check`: what this host can do, before and after the agent is installed.

use anyhow::Context as _;
use clap::Args;
use flannel_command::{Answer, PinOptions, PrintOptions, StateOptions, format::ask_at_once};
use flannel_inspect::check::{self, CheckReport, Finding, Level};
use flannel_terminal::color::Paint;

/// The output format, the colours, and the paths at which an agent's pins and state may be.
#[derive(Debug, Args)]
pub struct CheckOptions {
    #[command(flatten)]
    print: PrintOptions,
    #[command(flatten)]
    pins: PinOptions,
    #[command(flatten)]
    state: StateOptions,
}

/// Runs the command.
pub async fn run(options: &CheckOptions) -> anyhow::Result<Answer> {
    let dir = &options.state.state_dir;
    let agent = ask_at_once(dir).await;
    let pins = options.pins.root_of(agent.as_ref().ok());
    let report = check::run(&pins, dir, &agent)
        .await
        .context("cannot ask the kernel")?;
    let text = options.print.print(&report, |paint| text(&report, paint));
    Ok(Answer {
        text,
        code: u8::from(report.has_failed()),
    })
}

fn text(report: &CheckReport, paint: Paint) -> String {
    let lines: String = report
        .findings
        .iter()
        .map(|finding| line(finding, paint))
        .collect();
    let why = report
        .best
        .reason
        .as_ref()
        .map(|reason| format!(", not more because {reason}"))
        .unwrap_or_default();
    let lost = if report.has_failed() {
        "pods would not reach each other, see FAIL; otherwise "
    } else {
        ""
    };
    format!(
        "{lines}\n{lost}this node can do mode {}{why}\n",
        paint.head(&report.best.mode)
    )
}

fn line(finding: &Finding, paint: Paint) -> String {
    let level = match finding.level {
        Level::Ok => paint.good("ok    "),
        Level::Warn => paint.warn("warn  "),
        Level::Fail => paint.bad("FAIL  "),
    };
    let remedy = |remedy: &String| format!("\n{:22}{} {remedy}", "", paint.name("->"));
    let remedy = finding.remedy.as_ref().map(remedy).unwrap_or_default();
    format!("{level}{:<16}{}{remedy}\n", finding.topic, finding.text)
}

#[cfg(test)]
mod tests {
    use flannel_inspect::check::{FindingCode, HostCode};
    use flannel_terminal::color::plain_text;

    use super::*;

    #[test]
    fn a_level_has_its_colour_and_a_remedy_its_arrow() {
        let finding = Finding {
            topic: "mtu",
            code: Some(FindingCode::Host(HostCode::TunnelMtu)),
            level: Level::Fail,
            text: "too small".to_owned(),
            remedy: Some("raise it".to_owned()),
        };
        let plain = "FAIL  mtu             too small\n                      -> raise it\n";
        assert_eq!(line(&finding, Paint(false)), plain);
        let colored = line(&finding, Paint(true));
        assert!(
            colored.starts_with("\u{1b}[1m\u{1b}[31mFAIL  \u{1b}[0mmtu"),
            "{colored:?}"
        );
        assert_eq!(plain_text(&colored), plain);
    }
}
