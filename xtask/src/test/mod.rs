//! `test`: set up, build, then both halves of the tests, or a part of them on other kernels; one
//! sum.
//!
//! The last line is always `N passed, M failed`, with `, K skipped` behind it when there were any;
//! the line before it is the duration. What keeps tests from being run at all, set-up and
//! compilation included, counts as a failure; what this machine cannot do is printed as `NOT RUN`
//! and repeated before the sum. A test counts as skipped when it says so itself, by printing a line
//! that starts with `NOT RUN`.

mod kernels;
mod leftovers;
mod lines;
mod subjects;
mod suite;
mod tally;

use std::{env, path::PathBuf, process::ExitCode, time::Instant};

use self::{leftovers::Leftovers, suite::Suite, tally::Tally};
use crate::{
    build::{self, Built},
    cli::TestOptions,
    cluster, image,
    setup::{Needs, Setup, toolchain::Toolchain},
    workspace,
};

/// Things that some tests need in addition to a build.
#[derive(Debug, Default)]
struct Extras {
    /// An agent without its BPF object.
    stub: Option<PathBuf>,
    /// The container image.
    image: Option<PathBuf>,
    /// The programs and images of a Kubernetes.
    kubernetes: Option<PathBuf>,
}

/// Runs what the options choose. Errors are printed and counted, so that the sum stays the last
/// line.
pub(crate) fn run(setup: &Setup<'_>, options: &TestOptions) -> ExitCode {
    let start = Instant::now();
    let mut tally = Tally::default();
    let result = if options.kernels.is_empty() {
        run_halves(setup, options, &mut tally)
    } else {
        kernels::run(setup, &options.kernels, &options.filter, &mut tally)
    };
    if let Err(error) = result {
        eprintln!("xtask: {error:#}");
        tally.fail();
    }
    for line in tally.not_run() {
        println!("{line}");
    }
    let seconds = start.elapsed().as_secs();
    println!("test: took {} min {} s", seconds / 60, seconds % 60);
    println!("{tally}");
    if tally.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_halves(setup: &Setup<'_>, options: &TestOptions, tally: &mut Tally) -> anyhow::Result<()> {
    let subjects = subjects::chosen(setup.workspace(), options)?;
    let only_e2e = options.e2e || !options.subjects.is_empty();
    setup.machine(Needs::COMPILE.and(Needs::LAB))?;
    let toolchain = match toolchain(setup) {
        Ok(toolchain) => Some(toolchain),
        Err(reason) if only_e2e => return Err(reason),
        Err(reason) => {
            if !options.unit {
                tally.note_not_run(format!("NOT RUN: end-to-end suite: {reason:#}"));
            }
            None
        }
    };
    let end_to_end = (!options.unit && toolchain.is_some()).then(|| Suite::end_to_end(&subjects));
    let unit = (!only_e2e).then(Suite::unit);
    // Costs the agent two builds more, so only where everything is run.
    let everything = end_to_end.is_some() && subjects.is_empty() && options.filter.is_empty();
    let workspace = setup.workspace();
    let (built, stub) = build::build_while(workspace, toolchain.as_ref().map(build::Bpf::release), |built| {
        let stub = everything.then(|| build::build_stub(workspace)).transpose();
        unit.iter().chain(&end_to_end).for_each(|suite| suite.compile(workspace, built));
        stub
    })?;
    let stub = stub?;
    let wanted = |names: &[&str]| everything || subjects.iter().any(|subject| names.contains(&subject.as_str()));
    let kubernetes = (end_to_end.is_some() && wanted(&["kubernetes"])).then(|| cluster::ensure(setup, false));
    let kubernetes = made("the Kubernetes cluster", kubernetes, tally);
    if let Some(suite) = unit {
        let extras = Extras { kubernetes: kubernetes.clone(), ..Extras::default() };
        run_suite(setup, &suite, options, &built, &extras, tally)?;
    }
    if let Some(suite) = end_to_end {
        setup.checkers();
        let image = wanted(&["deploy", "kubernetes"]).then(|| image::make(setup, &built));
        let extras = Extras { stub, image: made("the container image", image, tally), kubernetes };
        let before = Leftovers::find();
        before.report("there before the tests");
        run_suite(setup, &suite, options, &built, &extras, tally)?;
        let left = Leftovers::find().since(&before);
        left.report("left behind by the tests");
        if !left.is_empty() {
            tally.fail();
        }
    }
    Ok(())
}

/// The result of making something; `None`, and noted as not run, where it cannot be made.
fn made(what: &str, result: Option<anyhow::Result<PathBuf>>, tally: &mut Tally) -> Option<PathBuf> {
    match result? {
        Ok(path) => Some(path),
        Err(error) => {
            tally.note_not_run(format!("NOT RUN: {what}: {error:#}"));
            None
        }
    }
}

/// The end-to-end suite needs both the toolchain and root.
fn toolchain(setup: &Setup<'_>) -> anyhow::Result<Toolchain> {
    anyhow::ensure!(workspace::is_root(), "network namespaces and BPF need root");
    setup.bpf()
}

fn run_suite(
    setup: &Setup<'_>,
    suite: &Suite,
    options: &TestOptions,
    built: &Built,
    extras: &Extras,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let mut cargo = suite.cargo(setup.workspace(), &options.filter);
    built.announce(&mut cargo);
    let variables = [
        ("FLANNEL_AGENT_STUB", &extras.stub),
        ("FLANNEL_IMAGE", &extras.image),
        ("FLANNEL_KUBERNETES", &extras.kubernetes),
    ];
    for (name, path) in variables {
        if let Some(path) = path {
            cargo.env(name, path);
        }
    }
    // The store's tests use the API server as well, with an etcd of its own, unless another is
    // named.
    let is_named = env::var_os("KUBE_APISERVER").is_some();
    let api_server = extras.kubernetes.as_ref().filter(|_| !is_named);
    if let Some((kubernetes, etcd)) = api_server.zip(setup.workspace().find_command("etcd")) {
        cargo.env("KUBE_APISERVER", kubernetes.join("bin/kube-apiserver")).env("ETCD", etcd);
    }
    suite.run(&mut cargo, tally)
}
