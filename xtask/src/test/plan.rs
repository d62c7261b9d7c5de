//! The two halves of the tests: what the options choose of them, and what runs at the same time.
//!
//! A machine with two CPUs idles half the time if all comes one after the other. So the unit tests
//! run while the agent is optimised at link time, and at the same time as the other subjects the
//! Kubernetes cluster, and after it two other kernels.

use std::{env, iter, path::PathBuf, thread, time::Instant};

use anyhow::Context as _;

use super::{
    kernels::ShortRun,
    leftovers::Leftovers,
    subjects::{self, KUBERNETES},
    suite::Suite,
    tally::Tally,
};
use crate::{
    build::{self, Built, Machine},
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
    /// Other kernels.
    kernels: Option<ShortRun>,
}

/// The suites that the options choose.
struct Plan<'a> {
    setup: &'a Setup<'a>,
    options: &'a TestOptions,
    /// The tests' start.
    start: Instant,
    unit: Vec<Suite>,
    end_to_end: Option<Suite>,
    kubernetes: Option<Suite>,
    /// The options leave nothing out.
    is_whole: bool,
    /// Subjects that need the container image, or the Kubernetes cluster, are among the chosen.
    wants_image: bool,
    wants_cluster: bool,
}

/// Sets up, builds and runs what the options choose, and adds its results to `tally`.
pub(super) fn run(setup: &Setup<'_>, options: &TestOptions, start: Instant, tally: &mut Tally) -> anyhow::Result<()> {
    let subjects = subjects::chosen(setup.workspace(), options)?;
    setup.machine(Needs::COMPILE.and(Needs::LAB))?;
    let toolchain = match toolchain(setup) {
        Ok(toolchain) => Some(toolchain),
        Err(reason) if options.is_only_end_to_end() => return Err(reason),
        Err(reason) => {
            if !options.unit {
                tally.note_not_run(format!("NOT RUN: end-to-end suite: {reason:#}"));
            }
            None
        }
    };
    let object = toolchain.as_ref().map(build::Bpf::release);
    let built = build::build_objects(setup.workspace(), object, Machine::Here)?;
    let plan = Plan::new(setup, options, start, subjects, toolchain.is_some());
    let extras = plan.before_the_agent(&built, tally)?;
    plan.after_the_agent(&built, extras, tally)
}

/// The end-to-end suite needs both the toolchain and root.
fn toolchain(setup: &Setup<'_>) -> anyhow::Result<Toolchain> {
    anyhow::ensure!(workspace::is_root(), "network namespaces and BPF need root");
    setup.bpf()
}

impl<'a> Plan<'a> {
    fn new(
        setup: &'a Setup<'a>,
        options: &'a TestOptions,
        start: Instant,
        mut subjects: Vec<String>,
        has_agent: bool,
    ) -> Self {
        let is_end_to_end = has_agent && !options.unit;
        let is_whole = is_end_to_end && !options.names_subjects() && options.filter.is_empty();
        // A filter alone does not say that what takes long to make is needed.
        let can_want = is_end_to_end && (options.names_subjects() || options.filter.is_empty());
        let wants = |names: &[&str]| can_want && subjects.iter().any(|subject| names.contains(&subject.as_str()));
        let (wants_image, wants_cluster) = (wants(&["deploy", KUBERNETES]), wants(&[KUBERNETES]));
        let has_cluster = subjects.iter().any(|subject| subject == KUBERNETES);
        subjects.retain(|subject| subject != KUBERNETES);
        let has_others = !subjects.is_empty();
        Self {
            setup,
            options,
            start,
            unit: if options.is_only_end_to_end() { Vec::new() } else { Suite::unit().into() },
            end_to_end: (is_end_to_end && has_others).then(|| Suite::end_to_end(&subjects, !options.names_subjects())),
            kubernetes: (is_end_to_end && has_cluster).then(Suite::kubernetes),
            is_whole,
            wants_image,
            wants_cluster,
        }
    }

    /// Builds the agent if a suite needs it, and does all that does without at the same time.
    fn before_the_agent(&self, built: &Built, tally: &mut Tally) -> anyhow::Result<Extras> {
        let mut others = || self.without_the_agent(built, tally);
        if self.needs_agent() { build::build_agent_while(self.setup.workspace(), built, others)? } else { others() }
    }

    const fn needs_agent(&self) -> bool {
        self.end_to_end.is_some() || self.kubernetes.is_some()
    }

    fn without_the_agent(&self, built: &Built, tally: &mut Tally) -> anyhow::Result<Extras> {
        let workspace = self.setup.workspace();
        // Costs two builds more, so only where everything is run.
        let stub = self.is_whole.then(|| build::build_stub(workspace)).transpose()?;
        let suites = self.unit.iter().chain(&self.end_to_end).chain(&self.kubernetes);
        suites.for_each(|suite| suite.compile(workspace, built));
        let kubernetes = self.wants_cluster.then(|| cluster::ensure(self.setup, false));
        let kubernetes = made("the Kubernetes cluster", kubernetes, tally);
        let kernels = self.is_whole.then(|| ShortRun::prepare(self.setup, built));
        let kernels = made("other kernels", kernels, tally);
        let extras = Extras { stub, image: None, kubernetes, kernels };
        for unit in &self.unit {
            tally.add(self.run_suite(unit, built, &extras)?);
        }
        Ok(extras)
    }

    fn after_the_agent(&self, built: &Built, extras: Extras, tally: &mut Tally) -> anyhow::Result<()> {
        if !self.needs_agent() {
            return Ok(());
        }
        self.setup.checkers();
        let image = self.wants_image.then(|| image::make(self.setup, built));
        let extras = Extras { image: made("the container image", image, tally), ..extras };
        let before = Leftovers::find();
        before.report("there before the tests");
        thread::scope(|scope| {
            let run = |suite: &Suite| self.run_suite(suite, built, &extras);
            let kernels = || extras.kernels.as_ref().map(|kernels| Ok(kernels.run(self.setup)));
            let others = scope.spawn(move || [self.kubernetes.as_ref().map(run), kernels()]);
            let subjects = self.end_to_end.as_ref().map(run);
            let others = others.join().ok().context("a test of Kubernetes or of other kernels panicked")?;
            for result in iter::once(subjects).chain(others).flatten() {
                tally.add(result?);
            }
            anyhow::Ok(())
        })?;
        let left = Leftovers::find().since(&before);
        left.report("left behind by the tests");
        if !left.is_empty() {
            tally.fail(format_args!("left behind by the tests: {left}"));
        }
        Ok(())
    }

    fn run_suite(&self, suite: &Suite, built: &Built, extras: &Extras) -> anyhow::Result<Tally> {
        let mut cargo = suite.cargo(self.setup.workspace(), &self.options.filter);
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
        if let Some((kubernetes, etcd)) = api_server.zip(self.setup.workspace().find_command("etcd")) {
            cargo.env("KUBE_APISERVER", kubernetes.join("bin/kube-apiserver")).env("ETCD", etcd);
        }
        suite.run(&mut cargo, self.start)
    }
}

/// The result of making something; `None`, and noted as not run, where it cannot be made.
fn made<T>(what: &str, result: Option<anyhow::Result<T>>, tally: &mut Tally) -> Option<T> {
    match result? {
        Ok(result) => Some(result),
        Err(error) => {
            tally.note_not_run(format!("NOT RUN: {what}: {error:#}"));
            None
        }
    }
}
