//! The trace of a flow as text.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    time::Duration,
};

use anyhow::Context as _;
use flannel_datapath::PinRoot;
use flannel_explain::{
    PacketDirection, Question, TraceOutcome, TracePath, TraceReport, TracedRule, trace,
};
use flannel_host::{signals::Stop, words::count};
use flannel_terminal::color::Paint;

/// Traces until this time has passed, or until a signal.
pub(super) async fn run(
    question: &Question,
    pins: &PinRoot,
    duration: Duration,
) -> anyhow::Result<TraceReport> {
    let mut stop = Stop::listen().context("cannot listen for signals")?;
    let stopped = async {
        stop.wait().await;
    };
    let begun = || {
        // A closed standard error must not make the command fail.
        drop(writeln!(
            io::stderr(),
            "tracing packets for {} s; Ctrl-C ends it",
            duration.as_secs()
        ));
    };
    Ok(Box::pin(trace(question, pins, duration, stopped, begun)).await?)
}

/// The ways of packets, a line for each rule.
pub(super) fn text(report: &TraceReport, paint: Paint) -> String {
    let TraceReport {
        seen,
        seen_replies,
        traced,
        dropped,
        passed,
        taken,
        unknown,
        ..
    } = report;
    let (seen, replies) = (
        count(*seen, "packet", "packets"),
        count(*seen_replies, "reply", "replies"),
    );
    let mut out = format!(
        "trace: {seen} and {replies} seen; {traced} traced: {dropped} dropped, {passed} passed, \
         {taken} taken, \
         {unknown} unknown\n"
    );
    for path in &report.paths {
        out.push_str(&way(path, paint));
    }
    if report.omitted > 0 {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "  {} by other ways",
            count(report.omitted, "packet", "packets")
        );
    }
    if report.replayed > 0 {
        let _ = writeln!(
            out,
            "  mode fast replayed {} without netfilter, as the step flow says; one in two seconds \
             passes it",
            count(report.replayed, "packet", "packets")
        );
    }
    if !report.untraced.is_empty() {
        let _ = writeln!(out, "  not traced: {}", report.untraced.join("; "));
    }
    out
}

fn way(path: &TracePath, paint: Paint) -> String {
    let TracePath {
        packets,
        direction,
        outcome,
        rules,
    } = path;
    let outcome = match outcome {
        TraceOutcome::Dropped => paint.bad("dropped"),
        TraceOutcome::Passed => paint.good("passed"),
        TraceOutcome::Taken => paint.warn("taken by a program"),
        TraceOutcome::Unknown => paint.warn("did not come to the last hook"),
    };
    let packets = match direction {
        PacketDirection::Original => count(*packets, "packet", "packets"),
        PacketDirection::Reply => {
            format!("{} on the way back", count(*packets, "packet", "packets"))
        }
    };
    rules
        .iter()
        .fold(format!("  {packets} {outcome}\n"), |out, traced| {
            out + &rule(traced)
        })
}

fn rule(rule: &TracedRule) -> String {
    let TracedRule {
        family,
        table,
        chain,
        handle,
        verdict,
        text,
    } = rule;
    let place = format!("{family} {table} {chain}");
    let judge = handle.map_or_else(|| "policy".to_owned(), |handle| format!("handle {handle}"));
    // The text has the verdict in it.
    let said = text.as_ref().unwrap_or(verdict);
    format!("    {place:<32} {judge:<11} {said}\n")
}
