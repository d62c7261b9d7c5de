//! Short commands inside a host: a time limit, an expected exit status, captured output.

use std::{
    io::Write as _,
    os::unix::process::ExitStatusExt as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};

use super::Host;
use crate::harness::wait::patient;

const DEFAULT_LIMIT: Duration = Duration::from_secs(30);

/// A command for one host. Without other wishes it must end with status 0 within 30 s.
#[derive(Debug)]
#[must_use = "a command does nothing until run() is called"]
pub struct HostCommand {
    host: Host,
    argv: Vec<String>,
    limit: Duration,
    expected: Option<i32>,
    environment: Vec<(String, String)>,
    input: Option<String>,
}

/// The output of a command, and its exit status.
#[derive(Clone, Debug)]
pub struct Output {
    /// The exit status; 128 + n for an end by signal n.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl HostCommand {
    pub(super) fn new(host: Host, argv: Vec<String>) -> Self {
        Self {
            host,
            argv,
            limit: DEFAULT_LIMIT,
            expected: Some(0),
            environment: Vec::new(),
            input: None,
        }
    }

    /// Another time limit; the patience of the run multiplies it.
    pub fn limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Another exit status than 0 is the right one.
    pub fn expect_code(self, code: i32) -> Self {
        Self {
            expected: Some(code),
            ..self
        }
    }

    /// Every exit status is right; the caller looks at [`Output::code`].
    pub fn any_code(self) -> Self {
        Self {
            expected: None,
            ..self
        }
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Text for standard input, which is empty otherwise.
    pub fn input(self, text: &str) -> Self {
        Self {
            input: Some(text.to_owned()),
            ..self
        }
    }

    /// Runs it to its end. The error shows the command line, how it ended and what it wrote to
    /// standard error.
    pub fn run(self) -> Result<Output> {
        let start = Instant::now();
        let limit = patient(self.limit);
        let output = self.capture(limit).with_context(|| self.describe())?;
        if start.elapsed() >= limit && matches!(output.code, 124 | 137) {
            bail!(
                "{}: ended after its limit of {limit:?}\n{}",
                self.describe(),
                output.stderr
            );
        }
        match self.expected {
            Some(expected) if expected != output.code => Err(anyhow!(
                "{}: exit status {} instead of {expected}\n{}{}",
                self.describe(),
                output.code,
                output.stdout,
                output.stderr
            )),
            _ => Ok(output),
        }
    }

    fn capture(&self, limit: Duration) -> Result<Output> {
        // `timeout` outlives us by its limit at most, so these commands need no record.
        let mut command = Command::new("timeout");
        command.args(["-k", "2", &limit.as_secs_f64().to_string()]);
        let by_thread = self.host.threads_enter_all();
        if !by_thread {
            command.args(self.host.enter_argv());
        }
        command.args(&self.argv);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(if self.input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = if by_thread {
            self.host.enter(|| command.spawn())??
        } else {
            command.spawn()?
        };
        let stdin = child.stdin.take();
        let output = thread::scope(|scope| {
            if let (Some(mut stdin), Some(input)) = (stdin, &self.input) {
                // A command that ends without reading all of it is judged by its exit status.
                scope.spawn(move || drop(stdin.write_all(input.as_bytes())));
            }
            child.wait_with_output()
        })?;
        let code = output
            .status
            .code()
            .or_else(|| output.status.signal().map(|signal| 128 + signal));
        Ok(Output {
            code: code.context("neither an exit status nor a signal")?,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    fn describe(&self) -> String {
        format!("{}: {}", self.host.name(), self.argv.join(" "))
    }
}
