//! `test --kernel`: kernels of Debian, booted one after the other in an emulated machine that sees
//! this machine's files, and a part of the tests on each.
//!
//! It owns `target/kernels`: a directory for each kernel, which is fetched once, and the last
//! results. A machine has two processors, runs only its tests, and ends with them. It writes only
//! to its memory.

mod architecture;
mod emulator;
mod guest;
mod initramfs;
mod package;
mod page;
mod programs;
mod report;
mod set;
mod userland;

use std::{
    env,
    ffi::OsString,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use self::{
    architecture::Architecture,
    emulator::Emulator,
    guest::Guest,
    package::Kernel,
    programs::Programs,
    report::{Event, Outcome, RunReader},
    set::{Feature, Series},
    userland::Userland,
};
use super::{
    lines::{self, Ending},
    tally::Tally,
};
use crate::{
    build::{self, Bpf, Built, Machine, Profile},
    image,
    setup::{Needs, Setup, cross::Cross},
    workspace,
};

/// The longest time to the first line of a booted kernel.
const BOOT: Duration = Duration::from_mins(5);
/// The boots that a kernel gets. Under QEMU before 8.1, one that patches its own code runs into its
/// own breakpoint now and then, and ends before it has said a word.
const BOOTS: u32 = 3;
/// The longest time without a line; a little more than the tests of one feature get.
const SILENCE: Duration = Duration::from_mins(16);
/// The factor by which tests wait longer: an emulated processor is slow.
const PATIENCE: &str = "6";

/// Runs the tests on the kernels of these names: the rows whose name has one of these parts; all
/// without any.
pub(super) fn run(
    setup: &Setup<'_>,
    names: &[String],
    parts: &[OsString],
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let (chosen, rows) = (set::chosen(names)?, set::rows(parts)?);
    ensure!(
        workspace::is_root(),
        "the machine's files are passed on as they are, which needs root"
    );
    setup.machine(Needs::COMPILE.and(Needs::LAB).and(Needs::KERNELS))?;
    for architecture in Architecture::ALL {
        let chosen: Vec<_> = chosen
            .iter()
            .copied()
            .filter(|series| series.architecture == architecture)
            .collect();
        if chosen.is_empty() {
            continue;
        }
        let guest = prepare(setup, architecture, &rows)?;
        run_on_each(setup, &chosen, &rows, &guest, tally);
    }
    if env::var_os("FLANNEL_WRITE_DOCS").is_some() {
        println!(
            "kernels: wrote {}",
            page::write(setup.workspace())?.display()
        );
    }
    Ok(())
}

/// The kernel that a plain run boots: the oldest that takes the programs. Its verifier refuses
/// programs that newer ones take.
const ONE: &str = "6.1";
/// The rows of a plain run.
const SHORT: [&str; 2] = ["mode that `check` offers", "programs: load and types"];

/// Runs a few rows on one other kernel, while other tests run; with `all` every row on every
/// kernel. The programs of `built` are there.
pub(super) fn run_beside(setup: &Setup<'_>, built: &Built, all: bool) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    if all {
        run(setup, &["all".to_owned()], &[], &mut tally)?;
        return Ok(tally);
    }
    let (chosen, rows) = (
        set::chosen(&[ONE.to_owned()])?,
        set::rows(&SHORT.map(OsString::from))?,
    );
    if let Err(error) = fetch(setup, &chosen) {
        tally.note_not_run(format!("NOT RUN: other kernels: {error:#}"));
        return Ok(tally);
    }
    let programs = Programs::build(setup.workspace(), built, Machine::Here, &rows)?;
    run_on_each(
        setup,
        &chosen,
        &rows,
        &here(setup, built, programs),
        &mut tally,
    );
    Ok(tally)
}

fn fetch(setup: &Setup<'_>, chosen: &[&'static Series]) -> anyhow::Result<()> {
    setup.machine(Needs::KERNELS)?;
    chosen
        .iter()
        .try_for_each(|series| Kernel::ensure(setup, series).map(drop))
}

/// Builds what the rows run on an architecture.
fn prepare(
    setup: &Setup<'_>,
    architecture: Architecture,
    rows: &[&'static Feature],
) -> anyhow::Result<Guest> {
    let rows: Vec<_> = rows
        .iter()
        .copied()
        .filter(|row| row.runs_on(architecture))
        .collect();
    let workspace = setup.workspace();
    match architecture {
        Architecture::Amd64 => {
            let built = build::build_for_lab(setup, Needs::LAB, &[build::AGENT, build::CONFINE])?;
            let programs = Programs::build(workspace, &built, Machine::Here, &rows)?;
            Ok(here(setup, &built, programs))
        }
        Architecture::Arm64 => {
            setup.machine(Needs::OTHER_MACHINE)?;
            let cross = Cross::ensure(setup)?;
            let toolchain = setup.bpf()?;
            let bpf = Some(Bpf::release(&toolchain));
            let built = build::build_objects(workspace, bpf, Machine::Other(&cross), Profile::Dev)?;
            let programs = Programs::build(workspace, &built, Machine::Other(&cross), &rows)?;
            build::build_for_foreign_lab(workspace, &built, &cross)?;
            let mut variables = variables(setup, &built);
            // The directories of this machine's search path have programs for it.
            variables.retain(|(name, _)| name != "PATH");
            variables.push(("PATH".to_owned(), image::SEARCH_PATH.into()));
            Ok(Guest {
                agent: built.program(build::AGENT),
                programs,
                variables,
            })
        }
    }
}

/// The programs that run on kernels for this machine's architecture.
fn here(setup: &Setup<'_>, built: &Built, programs: Programs) -> Guest {
    Guest {
        agent: built.program(build::AGENT),
        programs,
        variables: variables(setup, built),
    }
}

/// Variables of the test programs: the search path, and where their parts lie.
fn variables(setup: &Setup<'_>, built: &Built) -> Vec<(String, OsString)> {
    let mut command: Command = setup.workspace().command("env");
    built.announce(&mut command);
    command
        .env("FLANNEL_LAB_PATIENCE", PATIENCE)
        .env("HOME", "/root");
    let named = |(name, value): (&std::ffi::OsStr, Option<&std::ffi::OsStr>)| {
        Some((name.to_string_lossy().into_owned(), value?.to_owned()))
    };
    command.get_envs().filter_map(named).collect()
}

/// Boots these kernels, one after the other, and runs the rows on each.
fn run_on_each(
    setup: &Setup<'_>,
    kernels: &[&Series],
    rows: &[&'static Feature],
    guest: &Guest,
    tally: &mut Tally,
) {
    for series in kernels {
        if let Err(error) = run_on(setup, series, rows, guest, tally) {
            eprintln!("xtask: kernel {}: {error:#}", series.name);
            tally.fail(format_args!("kernel {}: {error:#}", series.name));
        }
    }
}

fn run_on(
    setup: &Setup<'_>,
    series: &Series,
    rows: &[&'static Feature],
    guest: &Guest,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let kernel = Kernel::ensure(setup, series)?;
    let features: Vec<&Feature> = rows
        .iter()
        .copied()
        .filter(|feature| feature.is_expected(series))
        .collect();
    for feature in rows.iter().filter(|feature| feature.is_too_new(series)) {
        println!(
            "kernel {}: NOT RUN: {}: its BPF programs need Linux 5.13",
            kernel.version, feature.name
        );
    }
    let userland = Userland::ensure(setup, series.architecture)?;
    let script = guest.script(series.architecture.output(), &features);
    let start = initramfs::make(setup, &kernel, &userland, &script)?;
    let console = kernel.dir().join("console.log");
    let name = format!("kernel {}", kernel.version);
    let mut reader = RunReader::new(&features, series.mode);
    let mut progress = Progress {
        name: &name,
        features: &features,
        since: Instant::now(),
        begun: Instant::now(),
    };
    let mut ending = Ok(Ending::Ended);
    for _ in 0..BOOTS {
        println!("{name}: boot ...");
        let mut emulator = Emulator::boot(setup.workspace(), &kernel, &start, &console)?;
        ending = follow(&mut emulator, &mut reader, &mut progress);
        if reader.has_read() || !matches!(ending, Ok(Ending::Ended)) {
            break;
        }
    }
    let (outcomes, own) = reader.finish();
    let is_success = own.is_success();
    println!(
        "{name}: {own}, after {} s",
        progress.since.elapsed().as_secs()
    );
    tally.add_from(&name, own);
    let results: Vec<(&Feature, Outcome)> = features.iter().copied().zip(outcomes).collect();
    page::keep(setup.workspace(), series, &kernel.version, &results)?;
    let seen = || format!("its console is in {}", console.display());
    if let Ending::Silent(limit) = ending.with_context(seen)? {
        bail!(
            "no line for {} s, so the machine was ended; {}",
            limit.as_secs(),
            seen()
        );
    }
    if !is_success {
        println!("{name}: {}", seen());
    }
    Ok(())
}

/// Follows a machine until it ends.
fn follow(
    emulator: &mut Emulator,
    reader: &mut RunReader<'_>,
    progress: &mut Progress<'_>,
) -> anyhow::Result<Ending> {
    lines::follow(emulator.process(), Some(BOOT), |line| {
        if let Some(event) = reader.read(line) {
            progress.show(&event);
        }
        Some(SILENCE)
    })
}

/// The lines that show how far a kernel is.
struct Progress<'a> {
    name: &'a str,
    features: &'a [&'a Feature],
    since: Instant,
    begun: Instant,
}

impl Progress<'_> {
    fn show(&mut self, event: &Event<'_>) {
        let Self {
            name,
            features,
            since,
            begun,
        } = self;
        match event {
            Event::Booted => println!("{name}: boot ... {} s", since.elapsed().as_secs()),
            Event::Begins(number) => {
                *begun = Instant::now();
                println!(
                    "{name}: [{}/{}] {} ...",
                    number + 1,
                    features.len(),
                    features[*number].name
                );
            }
            Event::Ended(number, outcome) => {
                let (cell, seconds) = (outcome.cell(), begun.elapsed().as_secs());
                println!(
                    "{name}: [{}/{}] {} ... {cell}, {seconds} s",
                    number + 1,
                    features.len(),
                    features[*number].name
                );
            }
            Event::Output("") => {}
            Event::Output(line) => println!("{name}: {line}"),
        }
    }
}
