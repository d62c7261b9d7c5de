//! The program of `cargo xtask cluster` with `--keep` or `--e2e`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use super::{Kubernetes, Parts, Progress, e2e, flannel};
use crate::Lab;

/// Runs a Kubernetes of three machines with our image. Needs root. `cargo xtask cluster` builds and
/// calls it.
#[derive(Debug, Parser)]
#[command(name = "cluster")]
pub struct Options {
    /// Leave the cluster running, and show how to use it
    #[arg(long)]
    pub keep: bool,
    /// Run Kubernetes' own network tests in the modes kernel and fast, and compare the results
    #[arg(long, conflicts_with = "keep", required_unless_present = "keep")]
    pub e2e: bool,
}

/// Runs the program.
pub fn run(options: &Options) -> ExitCode {
    match all(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn all(options: &Options) -> Result<()> {
    let parts = Parts::find().map_err(anyhow::Error::msg)?;
    let progress = Progress::new();
    let lab = if options.keep {
        Lab::new_lasting("kubernetes")
    } else {
        Lab::new("kubernetes")
    }?;
    lab.end_on_interrupt()?;
    let cluster = Kubernetes::start(lab, &parts, &progress)?;
    cluster.install(&flannel::manifest()?)?;
    progress.say("nodes and the agents' pods are ready");
    if options.e2e {
        return e2e::compare(&cluster, &parts, &progress);
    }
    for line in how_to_use(&cluster) {
        println!("{line}");
    }
    cluster.lab.keep()
}

fn how_to_use(cluster: &Kubernetes) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        "The cluster stays until `cargo xtask clean-lab`. Its logs are in".to_owned(),
        format!("  {}", cluster.lab.dir().join("logs").display()),
        "Enter a node:".to_owned(),
    ];
    for node in &cluster.nodes {
        lines.push(format!(
            "  {}: nsenter -t {} -n -m -p -u -i -C",
            node.name(),
            node.pid()
        ));
    }
    lines.push("kubectl, on n1:".to_owned());
    lines.push(format!(
        "  nsenter -t {} -n {}",
        cluster.nodes[0].pid(),
        cluster.kubectl().command_line()
    ));
    lines
}
