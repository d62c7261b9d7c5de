//! The time that the commands for operators take on a node that is well.
//!
//! Rounds ask each command once, one after the other; a start of the program that prints its
//! version is the control. Times are those of the whole process.

use std::{fs, path::PathBuf, time::Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::Serialize;

use super::report::median;
use crate::{Pair, harness::pressure};

/// The control: the program starts and ends.
const CONTROL: &str = "--version";

/// Options of the measurement.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Rounds; each runs every command once
    #[arg(long, default_value_t = 21)]
    rounds: u32,
    /// Write the rows to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A command, and its times.
#[derive(Debug, Serialize)]
struct Row {
    command: String,
    median_ms: f64,
    largest_ms: f64,
}

impl Options {
    pub(super) fn run(&self) -> Result<()> {
        ensure!(self.rounds >= 5, "--rounds must be at least 5");
        let pair = Pair::with_flags("bench-commands", &["--datapath=fast"])?;
        let (source, destination) = (pair.near.ip(), pair.far.ip());
        let lines = [
            CONTROL.to_owned(),
            "status".to_owned(),
            "check".to_owned(),
            format!("explain {source} {destination}"),
            format!("explain --proto=icmp {source} {destination}"),
            "maps dump --diff".to_owned(),
            "top --once".to_owned(),
        ];
        let mut times = vec![Vec::new(); lines.len()];
        for _ in 0..self.rounds {
            for (line, times) in lines.iter().zip(&mut times) {
                times.push(time(&pair, line)?);
            }
        }
        let rows: Vec<Row> = lines
            .into_iter()
            .zip(times)
            .map(|(command, times)| row(command, times))
            .collect();
        print!("{}", table(&rows));
        println!(
            "\nCPU pressure of the last 10 s: {:.0} %",
            pressure::recent() * 100.0
        );
        if let Some(file) = &self.json {
            let text = serde_json::to_string_pretty(&rows)? + "\n";
            fs::write(file, text).with_context(|| file.display().to_string())?;
        }
        Ok(())
    }
}

/// Milliseconds from the start of the process to its end.
fn time(pair: &Pair, line: &str) -> Result<f64> {
    let words: Vec<&str> = line.split(' ').collect();
    let argv = pair.sender.argv_on_the_host(&words);
    let begun = Instant::now();
    pair.sender.node().run(argv)?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

fn row(command: String, mut times: Vec<f64>) -> Row {
    times.sort_unstable_by(f64::total_cmp);
    Row {
        command,
        median_ms: median(&times),
        largest_ms: times.last().copied().unwrap_or(f64::NAN),
    }
}

fn table(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let Row {
            command,
            median_ms,
            largest_ms,
        } = row;
        format!("| `{command}` | {median_ms:.0} | {largest_ms:.0} |\n")
    };
    let lines: String = rows.iter().map(line).collect();
    format!("| command | median, ms | largest, ms |\n|---|---:|---:|\n{lines}")
}
