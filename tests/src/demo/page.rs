//! The look of the demo: numbered, timed steps in plain text.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// The width of a step's first line, including its time at the end.
const WIDTH: usize = 96;

/// The start of a line about something that is not as it should be.
const FINDING: &str = "NOT AS IT SHOULD BE: ";

/// The output so far: start time, counts, and lines that are not printed yet.
#[derive(Debug)]
pub(super) struct Page {
    start: Instant,
    steps: u32,
    findings: u32,
    lines: Vec<String>,
}

impl Page {
    /// An empty page with its head.
    pub(super) fn new() -> Self {
        println!("\nflannel with an eBPF datapath: a cluster of three nodes on one kernel");
        Self {
            start: Instant::now(),
            steps: 0,
            findings: 0,
            lines: Vec::new(),
        }
    }

    /// Runs one step; its heading is shown at once, its lines and its time when it is done.
    pub(super) fn step<T>(
        &mut self,
        title: &str,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.steps += 1;
        let start = Instant::now();
        let heading = format!("{:>2}  {title} ", self.steps);
        print!("\n{heading}");
        flush();
        let outcome = work(self);
        let dots = ".".repeat(WIDTH.saturating_sub(heading.len() + 8));
        println!("{dots} {}", seconds(start.elapsed()));
        for line in self.lines.drain(..) {
            println!("{}", format!("    {line}").trim_end());
        }
        outcome.with_context(|| format!("step {}, {title}", self.steps))
    }

    /// A line below the heading of the running step.
    pub(super) fn line(&mut self, text: &str) {
        self.lines.extend(text.lines().map(str::to_owned));
    }

    /// The claim that the step has shown, if it has no finding.
    pub(super) fn proved(&mut self, what: &str) {
        if !self.lines.iter().any(|line| line.starts_with(FINDING)) {
            self.line(&format!("proved: {what}"));
        }
    }

    /// An empty line.
    pub(super) fn gap(&mut self) {
        self.lines.push(String::new());
    }

    /// Something is as it should be, or it is a finding.
    pub(super) fn expect(&mut self, good: bool, finding: &str) {
        if !good {
            self.findings += 1;
            self.line(&format!("{FINDING}{finding}"));
        }
    }

    /// The demo ends here.
    pub(super) fn failed(&mut self, error: &anyhow::Error) {
        self.findings += 1;
        println!("\n    FAILED");
        for cause in error.chain() {
            println!(
                "    {}",
                cause.to_string().trim_end().replace('\n', "\n    ")
            );
        }
    }

    /// The last line; the number of findings.
    pub(super) fn summary(&self) -> u32 {
        let verdict = match self.findings {
            0 => "all as it should be".to_owned(),
            1 => "one finding, marked above".to_owned(),
            more => format!("{more} findings, marked above"),
        };
        println!(
            "\n{} steps in {}: {verdict}\n",
            self.steps,
            seconds(self.start.elapsed()).trim_start()
        );
        self.findings
    }
}

fn seconds(time: Duration) -> String {
    format!("{:>5.1} s", time.as_secs_f64())
}

/// A heading has no end of line yet.
fn flush() {
    // A closed pipe shows at the next line printed.
    drop(std::io::Write::flush(&mut std::io::stdout()));
}
