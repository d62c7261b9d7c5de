//! Pod-to-pod speed in each mode, beside the host network's, on two nodes and one cable.
//!
//! All processes of the load run on one CPU, modes are interleaved within a round, and what counts are medians and
//! ratios: the machine is shared, so no absolute figure is judged. That a mode really took the packets is checked.

mod lab;
mod plan;
mod report;
mod scale;
mod worker;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};

use self::{
    lab::Bench,
    plan::{Mode, Profile, Workload},
    report::Series,
};

/// Measures the agent's modes on a lab of two nodes. Needs root; `FLANNEL_AGENT` is the agent's binary. `cargo xtask
/// bench` builds and calls it.
#[derive(Debug, Parser)]
#[command(name = "bench", args_conflicts_with_subcommands = true)]
pub struct Options {
    /// Rounds; each measures every workload in every mode once
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds of one measurement
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    /// CPU on which the load runs; the last one without this
    #[arg(long)]
    cpu: Option<usize>,
    /// Underlay profiles
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Profile::ALL)]
    profiles: Vec<Profile>,
    /// Workloads
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Workload::ALL)]
    workloads: Vec<Workload>,
    /// Modes; ratios need `host` and `kernel`
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Mode::ALL)]
    modes: Vec<Mode>,
    /// Write the rows of the table to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(subcommand)]
    other: Option<Other>,
}

/// What else this program does. The workers are for itself, inside a pod.
#[derive(Debug, Subcommand)]
enum Other {
    /// Measures how a node follows thousands of peers, beside the kernel's floor
    Scale(scale::Options),
    /// Answers one client
    #[command(hide = true)]
    RrServer(worker::Server),
    /// Asks a server, prints what it measured
    #[command(hide = true)]
    RrClient(worker::Client),
}

/// Runs a bench, or one of its workers.
pub fn run(options: &Options) -> Result<()> {
    match &options.other {
        Some(Other::Scale(scale)) => scale.run(),
        Some(Other::RrServer(server)) => server.run(),
        Some(Other::RrClient(client)) => client.run(),
        None => measure(options),
    }
}

fn measure(options: &Options) -> Result<()> {
    ensure!(options.rounds > 0 && options.seconds > 0, "--rounds and --seconds must be at least 1");
    let bench = Bench::new(options.cpu)?;
    let mut series = Vec::new();
    for &profile in &options.profiles {
        bench.set_profile(profile)?;
        let of_profile = rounds(options, &bench, profile)?;
        print!("{}", report::table(profile, &of_profile));
        series.extend(of_profile);
    }
    if let Some(file) = &options.json {
        let rows: Vec<_> = series.iter().map(Series::row).collect();
        let text = serde_json::to_string_pretty(&rows)? + "\n";
        fs::write(file, text).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

fn rounds(options: &Options, bench: &Bench, profile: Profile) -> Result<Vec<Series>> {
    let pairs = options.workloads.iter().flat_map(|&workload| options.modes.iter().map(move |&mode| (workload, mode)));
    let mut series: Vec<Series> = pairs.map(|(workload, mode)| Series::new(profile, workload, mode)).collect();
    for round in 1..=options.rounds {
        eprintln!("{profile}: round {round} of {}", options.rounds);
        for &mode in &options.modes {
            bench.set_mode(mode)?;
            for series in series.iter_mut().filter(|series| series.mode == mode) {
                series.samples.push(bench.sample(series.workload, mode, options.seconds)?);
            }
        }
    }
    Ok(series)
}
