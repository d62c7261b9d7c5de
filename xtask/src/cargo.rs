//! One cargo command that compiles: its messages, and lines of progress while it runs.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};

use crate::progress::{Line, Progress};

/// The width of cargo's bar, so that it has room for names.
const WIDTH: &str = "160";

/// Runs a command that compiles. Calls `message` with each line of its standard output, which has
/// cargo's messages where the command asks for them (`--message-format`).
///
/// # Errors
/// It could not be started, or it failed; `what` names it in the message. Its own messages have
/// been shown.
pub(crate) fn compile(
    command: &mut Command,
    what: &str,
    message: impl FnMut(&str),
) -> anyhow::Result<()> {
    compile_and_count(command, what, message).map(drop)
}

/// The same. Returns the number of warnings.
pub(crate) fn compile_and_count(
    command: &mut Command,
    what: &str,
    mut message: impl FnMut(&str),
) -> anyhow::Result<u32> {
    let started = Instant::now();
    command
        .env("CARGO_TERM_PROGRESS_WHEN", "always")
        .env("CARGO_TERM_PROGRESS_WIDTH", WIDTH);
    command
        .env("CARGO_TERM_COLOR", "never")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {what} ({command:?})"))?;
    let errors = child.stderr.take().context("standard error is a pipe")?;
    let output = child.stdout.take().context("standard output is a pipe")?;
    let warnings = thread::scope(|scope| {
        let shown = scope.spawn(|| show(errors, started));
        // A line that is not text is none of cargo's.
        BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .for_each(|line| message(&line));
        shown
            .join()
            .ok()
            .context("reading cargo's messages panicked")
    })?;
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for {what}"))?;
    ensure!(
        status.success(),
        "{what} failed ({status}); its own messages are above"
    );
    println!("build: {what}: {}", seconds(started.elapsed()));
    Ok(warnings)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f32())
}

/// Shows messages, and the bar as lines. Returns the number of warnings.
fn show(errors: impl Read, started: Instant) -> u32 {
    let mut warnings = 0;
    let mut reader = BufReader::new(errors);
    let mut progress = Progress::default();
    let mut line = Vec::new();
    while let Some(text) = next_line(&mut reader, &mut line) {
        match Line::read(&text) {
            Line::Bar { done, total, now } => {
                if let Some(line) = progress.line(started.elapsed(), done, total, now) {
                    println!("{line}");
                }
            }
            Line::Status => {}
            Line::Message(text) => {
                warnings += u32::from(text.starts_with("warning: "));
                eprintln!("{text}");
            }
        }
    }
    warnings
}

/// The next line, which ends with a newline or a carriage return; `None` at the end.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> Option<String> {
    line.clear();
    loop {
        let buffer = reader.fill_buf().ok()?;
        let end = buffer.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let length = end.unwrap_or(buffer.len());
        line.extend_from_slice(&buffer[..length]);
        let is_over = buffer.is_empty();
        reader.consume(length + usize::from(end.is_some()));
        if end.is_some() || is_over && !line.is_empty() {
            return Some(String::from_utf8_lossy(line).into_owned());
        }
        if is_over {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carriage_returns_end_lines_too() {
        let mut text = "a\rb\nc".as_bytes();
        let mut line = Vec::new();
        let lines: Vec<String> = std::iter::from_fn(|| next_line(&mut text, &mut line)).collect();
        assert_eq!(lines, ["a", "b", "c"]);
    }

    #[test]
    fn warnings_are_counted() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo 'warning: an unused word' >&2; echo '  warning: not at the start' >&2",
        ]);
        assert_eq!(
            compile_and_count(&mut command, "a build", |_| ()).expect("status 0"),
            1
        );
    }

    #[test]
    fn messages_arrive_and_a_failure_names_the_command() {
        let mut seen = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo '{}'; exit 3"]);
        let error = compile(&mut command, "a build", |line| seen.push(line.to_owned()))
            .expect_err("status 3");
        assert_eq!(seen, ["{}"]);
        assert!(error.to_string().contains("a build failed"), "{error}");
    }
}
