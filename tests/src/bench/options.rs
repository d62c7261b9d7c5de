//! The command line, and what of it cannot work.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};

use super::{
    commands,
    cpus::{Cpus, Placement},
    plan::{Mode, Profile, Via, Workload},
    programs,
    rounds::Plan,
    scale,
    site::Binaries,
    worker,
};

/// Measures the agent's modes on nodes made of network namespaces. Needs root; `FLANNEL_AGENT` is
/// the agent's binary. `cargo xtask bench` builds and calls it.
#[derive(Debug, Parser)]
#[command(name = "bench", args_conflicts_with_subcommands = true)]
pub struct Options {
    /// Rounds; each measures every workload in every mode once
    #[arg(long, default_value_t = 7, conflicts_with = "quick")]
    rounds: u32,
    /// Seconds of one measurement; may be a fraction
    #[arg(long, default_value_t = 1.0, conflicts_with = "quick")]
    seconds: f64,
    /// One round of short measurements: a look, not a result
    #[arg(long)]
    quick: bool,
    /// CPU on which the load runs, of `--cpus=2` its client; the last one without this
    #[arg(long)]
    cpu: Option<usize>,
    /// CPUs of the load: one for client and server, one for each, or any
    #[arg(long, value_enum, default_value_t)]
    cpus: Placement,
    /// Underlay profiles
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Profile::ALL)]
    profile: Vec<Profile>,
    /// Workloads
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Workload::ALL)]
    workload: Vec<Workload>,
    /// The addresses that are asked
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Via::ALL)]
    via: Vec<Via>,
    /// Modes; ratios need `host` and `kernel`, that of `wireguard` needs `wireguard_host`. Without
    /// this all of the backend vxlan, and `stock` and `other` with their binaries
    #[arg(long, value_enum, value_delimiter = ',')]
    mode: Vec<Mode>,
    /// The binary of a stock flanneld; adds a cluster of it for comparison
    #[arg(long, value_name = "PATH")]
    peer_flanneld: Option<PathBuf>,
    /// The binary of another build of the agent; adds a cluster of it in mode fast for comparison
    #[arg(long, value_name = "PATH")]
    other_agent: Option<PathBuf>,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(subcommand)]
    pub(super) other: Option<Other>,
}

/// Destinations of the rows, in addition to the terminal.
#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// Write the rows to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Draw the rows into this file
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
}

/// The other commands. The workers are internal: the bench starts them inside a pod.
#[derive(Debug, Subcommand)]
pub(super) enum Other {
    /// Measures how a node follows thousands of peers, compared with the kernel's floor
    Scale(scale::Options),
    /// Measures what each BPF program takes for a packet, by what it did with it
    Programs(programs::Options),
    /// Measures what the commands for operators take, such as status, check and explain
    Commands(commands::Options),
    /// Shows a recorded run: its rows as Markdown, and with --svg as a chart
    Show {
        /// The file that --json wrote
        rows: PathBuf,
        /// Draw the rows into this file
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
    /// Answers one client
    #[command(hide = true)]
    Server(worker::Server),
    /// Asks a server, prints what it measured
    #[command(hide = true)]
    Client(worker::Client),
}

impl Options {
    /// Returns the plan of the measurements. All options are checked here, before a lab is made.
    pub(super) fn plan(&self) -> Result<Plan> {
        let (rounds, seconds) = if self.quick {
            (1, 0.25)
        } else {
            (self.rounds, self.seconds)
        };
        ensure!(rounds > 0, "--rounds must be at least 1");
        ensure!(
            (0.1..=60.0).contains(&seconds),
            "--seconds={seconds}: from 0.1 to 60"
        );
        let mut modes = self.mode.clone();
        if modes.is_empty() {
            modes.extend(Mode::ALL.into_iter().filter(|mode| self.is_default(*mode)));
        }
        for (mode, flag) in [
            (Mode::Stock, "--peer-flanneld"),
            (Mode::Other, "--other-agent"),
        ] {
            let is_complete = !modes.contains(&mode) || self.is_default(mode);
            ensure!(
                is_complete,
                "--mode={mode} needs a binary: give its path with {flag}"
            );
        }
        for (flag, binary) in [
            ("--peer-flanneld", &self.peer_flanneld),
            ("--other-agent", &self.other_agent),
        ] {
            binary
                .as_deref()
                .map(|binary| check_binary(flag, binary))
                .transpose()?;
        }
        self.output.check()?;
        Ok(Plan {
            rounds,
            seconds,
            placement: self.cpus,
            cpus: Cpus::choose(self.cpus, self.cpu)?,
            profiles: self.profile.clone(),
            workloads: self.workload.clone(),
            vias: self.via.clone(),
            modes,
            binaries: Binaries {
                flanneld: self.peer_flanneld.clone(),
                agent: self.other_agent.clone(),
            },
        })
    }

    /// Returns true if the mode is measured where none is named.
    fn is_default(&self, mode: Mode) -> bool {
        match mode {
            Mode::Stock => self.peer_flanneld.is_some(),
            Mode::Other => self.other_agent.is_some(),
            Mode::Host | Mode::Kernel | Mode::Encap | Mode::Fast => true,
            // Other ends or another backend: measured if named.
            Mode::OutwardKernel
            | Mode::OutwardFast
            | Mode::InwardKernel
            | Mode::InwardFast
            | Mode::WireguardHost
            | Mode::Wireguard
            | Mode::WireguardFast => false,
        }
    }
}

/// That it can be run.
fn check_binary(flag: &str, path: &Path) -> Result<()> {
    let tried = Command::new(path).arg("--version").output();
    let tried = tried
        .with_context(|| format!("{flag}={}: not a binary that can be run", path.display()))?;
    ensure!(
        tried.status.success(),
        "{flag}={}: `--version` ended with {}",
        path.display(),
        tried.status
    );
    Ok(())
}

impl Output {
    /// A run takes long: what cannot be written in the end is said in the beginning.
    fn check(&self) -> Result<()> {
        for file in [&self.json, &self.svg].into_iter().flatten() {
            let directory = file
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            let there = directory.is_none_or(Path::is_dir) && !file.is_dir();
            ensure!(
                there,
                "{}: cannot be written, its directory is not there or it is one",
                file.display()
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn plan(line: &str) -> Result<Plan> {
        Options::try_parse_from(line.split(' '))?.plan()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_plan_is_everything_unless_something_is_chosen() -> Result<()> {
        let all = plan("bench")?;
        assert_eq!(
            all.modes,
            [Mode::Host, Mode::Kernel, Mode::Encap, Mode::Fast]
        );
        assert_eq!(
            (all.workloads.len(), all.vias.len(), all.profiles.len()),
            (8, 2, 2)
        );
        let some = plan(
            "bench --mode=fast,host --workload=udp_pps --via=pod --profile=wire --rounds=3 \
             --seconds=0.5",
        )?;
        assert_eq!(
            (some.modes, some.workloads),
            (vec![Mode::Fast, Mode::Host], vec![Workload::UdpPps])
        );
        assert_eq!(
            (some.vias, some.profiles, some.rounds),
            (vec![Via::Pod], vec![Profile::Wire], 3)
        );
        assert!(
            plan("bench --peer-flanneld=/bin/true")?
                .modes
                .contains(&Mode::Stock)
        );
        assert!(
            plan("bench --other-agent=/bin/true")?
                .modes
                .contains(&Mode::Other)
        );
        Ok(())
    }

    #[test]
    fn what_cannot_work_is_said_before_a_lab_is_made() {
        for (line, hint) in [
            ("bench --mode=stock", "--peer-flanneld"),
            ("bench --mode=other", "--other-agent"),
            (
                "bench --peer-flanneld=/nowhere/flanneld",
                "not a binary that can be run",
            ),
            ("bench --peer-flanneld=/bin/false", "`--version` ended"),
            ("bench --rounds=0", "--rounds"),
            ("bench --cpu=1000", "--cpu=1000"),
            ("bench --cpus=any --cpu=0", "--cpus=any"),
            ("bench --seconds=0", "--seconds"),
            ("bench --seconds=NaN", "--seconds"),
            ("bench --json=/nowhere/rows.json", "/nowhere/rows.json"),
        ] {
            let error = plan(line)
                .err()
                .map(|error| format!("{error:#}"))
                .unwrap_or_default();
            assert!(error.contains(hint), "{line}: {error:?}");
        }
    }
}
