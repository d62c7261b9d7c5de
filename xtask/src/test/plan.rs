//! One run of the tests: set-up, compilation and tests at the same time.
//!
//! The unit tests of a crate run as soon as it is compiled, the end-to-end tests as soon as the
//! agent is. What is slow to fetch is fetched while something compiles that does not need it.

use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Sender},
    },
    thread,
    time::Duration,
};

use anyhow::Context as _;

use super::{
    Turn,
    host::Host,
    job::{self, CLUSTER, HostUse, Job, Need, Task},
    kernels,
    leftovers::Leftovers,
    load::Load,
    process::{DEADLINE, Surroundings},
    programs::TestProgram,
    runner::{RunEvent, Runner},
    selection::Selection,
    tally::Tally,
    timings::Timings,
};
use crate::{
    build::{self, Bpf, Built, Machine, Profile},
    cargo,
    cli::TestOptions,
    cluster, image,
    setup::{Needs, Setup, toolchain::Toolchain},
    workspace::{self, package_dirs, package_name},
};

/// Longer runs of the tests that `--all` has.
const LONG: [(&str, &str); 7] = [
    ("FLANNEL_DIFF_MINUTES", "3"),
    ("FLANNEL_CHURN_FLOWS", "1000000"),
    ("FLANNEL_CHURN_SECONDS", "120"),
    ("FLANNEL_IDLE_SECONDS", "330"),
    ("FLANNEL_CHAOS_SECONDS", "60"),
    ("FLANNEL_FLOOD_SECONDS", "60"),
    ("FLANNEL_FAULTS", "60"),
];

/// The time that a million short flows take, on two busy cores.
const MILLION_FLOWS: Duration = Duration::from_mins(6);

/// The time that a random fault takes, with its recovery.
const FAULT: Duration = Duration::from_secs(2);

/// The variables of tests that run for this time.
fn soak(time: Duration) -> [(&'static str, String); 7] {
    let seconds = time.as_secs();
    let flows = 1_000_000 * seconds / MILLION_FLOWS.as_secs();
    let minutes = seconds.div_ceil(60);
    [
        ("FLANNEL_DIFF_MINUTES", minutes.to_string()),
        ("FLANNEL_CHURN_FLOWS", flows.to_string()),
        ("FLANNEL_CHURN_SECONDS", seconds.to_string()),
        ("FLANNEL_IDLE_SECONDS", seconds.to_string()),
        ("FLANNEL_FLOOD_SECONDS", seconds.to_string()),
        ("FLANNEL_CHAOS_SECONDS", seconds.to_string()),
        (
            "FLANNEL_FAULTS",
            seconds.div_ceil(FAULT.as_secs()).to_string(),
        ),
    ]
}

/// Sets up, builds and runs what the options choose, and adds its results to `tally`. Returns the
/// times of the tests.
pub(super) fn run(
    setup: &Setup<'_>,
    options: &TestOptions,
    turn: Turn,
    tally: &mut Tally,
) -> anyhow::Result<Timings> {
    let root = setup.workspace().root();
    let mut selection = Selection::new(options, &job::subjects(root)?, &crates(root)?)?;
    if turn == Turn::Measurements {
        selection = selection.of_measurements();
    }
    setup.machine(Needs::COMPILE)?;
    let before = Leftovers::find();
    before.report("there before the tests");
    let reports = setup.workspace().logs()?.join("reports");
    let deadline = DEADLINE + options.soak.unwrap_or_default();
    let surroundings = Surroundings {
        variables: Vec::new(),
        wrapper: Vec::new(),
        reports,
        deadline,
    };
    let (sender, events) = mpsc::channel();
    let plan = Plan {
        setup,
        selection: &selection,
        soak: options.soak,
        former: options.former.as_deref(),
        events: sender.clone(),
        seen: Mutex::default(),
        warnings: AtomicU32::default(),
        host: Mutex::default(),
    };
    let runner = Runner::new(setup.workspace(), surroundings, sender);
    let (own, timings) = thread::scope(|scope| {
        scope.spawn(|| plan.produce());
        runner.run(scope, &events)
    });
    // The host ends with it.
    drop(plan);
    tally.add(own);
    let left = Leftovers::find().since(&before);
    left.report("left behind by the tests");
    if !left.is_empty() {
        tally.fail(format_args!("left behind by the tests: {left}"));
    }
    Ok(timings)
}

/// The crates whose tests can be chosen by name. Those of the programs and of the end-to-end suite
/// have other ways.
fn crates(root: &Path) -> anyhow::Result<Vec<String>> {
    const OTHERS: [&str; 2] = ["flannel-ebpf", "flannel-tests"];
    let mut names = Vec::new();
    for folder in package_dirs(root)? {
        let manifest = fs::read_to_string(folder.join("Cargo.toml"))?;
        names.extend(
            package_name(&manifest)
                .filter(|name| !OTHERS.contains(name))
                .map(str::to_owned),
        );
    }
    Ok(names)
}

/// The producer of a run's jobs: it sets up and compiles, and says what is there.
struct Plan<'a> {
    setup: &'a Setup<'a>,
    selection: &'a Selection,
    /// The duration of tests that grow with time.
    soak: Option<Duration>,
    /// Another version of the agent.
    former: Option<&'a Path>,
    events: Sender<RunEvent<'a>>,
    /// Programs whose tests have been sent: cargo names them again in each build.
    seen: Mutex<BTreeSet<PathBuf>>,
    /// Warnings of the compilations.
    warnings: AtomicU32,
    /// The host of a profile, which lives as long as the run.
    host: Mutex<Option<Host>>,
}

impl<'a> Plan<'a> {
    /// Makes all that was chosen, and ends with [`RunEvent::Compiled`].
    fn produce(&self) {
        let result = self.make_all();
        self.send(RunEvent::Compiled(result));
    }

    /// A main loop that has ended needs no events.
    fn send(&self, event: RunEvent<'a>) {
        drop(self.events.send(event));
    }

    fn make_all(&self) -> anyhow::Result<()> {
        let built = thread::scope(|scope| {
            let set_up = scope.spawn(|| self.set_up());
            let early = self.compile_early();
            let built = set_up.join().ok().context("the set-up panicked")?;
            early.and(built)
        })?;
        let built = self.as_shipped(built)?;
        let stub = self.stub()?;
        let kubernetes = self.kubernetes();
        self.send(RunEvent::SetUp(self.variables(
            &built,
            stub,
            kubernetes.as_deref(),
        )));
        self.host()?;
        self.compile(&built, kubernetes.is_some())?;
        self.tasks(&Arc::new(built));
        Ok(())
    }

    /// With `--all` the programs as users get them, whose agent takes minutes to optimise.
    fn as_shipped(&self, built: Built) -> anyhow::Result<Built> {
        if !self.selection.is_all || !self.selection.needs_agent() {
            return Ok(built);
        }
        let bpf = self.setup.bpf()?;
        build::build(
            self.setup.workspace(),
            Some(Bpf::release(&bpf)),
            build::Parts::Agent,
        )
    }

    /// The packages of the lab, the BPF toolchain, and the BPF object.
    fn set_up(&self) -> anyhow::Result<Built> {
        self.setup.machine(Needs::LAB)?;
        let toolchain = match self.toolchain() {
            Err(reason) if self.selection.unit => {
                self.not_run(format!("NOT RUN: end-to-end suite: {reason:#}"));
                None
            }
            toolchain => Some(toolchain?),
        };
        let bpf = toolchain.as_ref().map(Bpf::release);
        build::build_objects(self.setup.workspace(), bpf, Machine::Here, Profile::Dev)
    }

    /// The end-to-end suite needs both the toolchain and root.
    fn toolchain(&self) -> anyhow::Result<Toolchain> {
        anyhow::ensure!(workspace::is_root(), "network namespaces and BPF need root");
        self.setup.bpf()
    }

    /// The tests of the verbs, the CNI plugin, and what needs no BPF programs.
    fn compile_early(&self) -> anyhow::Result<()> {
        let workspace = self.setup.workspace();
        if self.selection.takes_verbs() {
            let mut verbs = workspace.cargo_for_tests();
            verbs
                .args(["build", "--package=xtask", "--tests"])
                .args(workspace::locked());
            self.cargo(&mut verbs, "the tests of the verbs")?;
        }
        if self.selection.needs_agent() {
            let built = build::build_objects(workspace, None, Machine::Here, Profile::Dev)?;
            build::build_plugin(workspace.cargo(), workspace, &built, Machine::Here)?;
        }
        if !self.selection.is_whole {
            return Ok(());
        }
        self.cargo(
            &mut build::early_build(workspace),
            "what needs no BPF programs",
        )
    }

    fn compile(&self, built: &Built, has_cluster: bool) -> anyhow::Result<()> {
        let workspace = self.setup.workspace();
        let targets = self.selection.targets(has_cluster);
        if targets.is_empty() {
            // Cargo would compile every library and program.
            return Ok(());
        }
        let mut cargo = build::dev_build(workspace, built, self.selection.verb());
        cargo.args(targets);
        thread::scope(|scope| {
            if self.selection.needs_checkers() {
                scope.spawn(|| self.setup.checkers());
            }
            self.cargo(&mut cargo, "the agent and the tests")
        })?;
        self.send(RunEvent::AgentIsReady);
        if workspace.has_clippy() {
            self.lint_the_rest(built)?;
        }
        Ok(())
    }

    /// Compiles the tests that do not run here. Says what clippy and rustdoc found in all of it.
    fn lint_the_rest(&self, built: &Built) -> anyhow::Result<()> {
        let mut cargo = build::dev_build(self.setup.workspace(), built, &["build"]);
        cargo.arg(format!("--test={CLUSTER}"));
        let found = self.warnings.load(Ordering::Relaxed)
            + cargo::compile_and_count(&mut cargo, "the rest", |_| ())?;
        let mut tally = Tally::default();
        if found > 0 {
            tally.fail(format_args!(
                "clippy and rustdoc: {found} lines with a warning, which stand above"
            ));
        }
        self.add(tally);
        Ok(())
    }

    /// Compiles, and sends the tests of each program as soon as it is there.
    fn cargo(&self, cargo: &mut Command, what: &str) -> anyhow::Result<()> {
        cargo.arg("--message-format=json-render-diagnostics");
        let mut result = Ok(());
        let warnings = cargo::compile_and_count(cargo, what, |message| {
            let Some(program) = TestProgram::read(message) else {
                return;
            };
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.selection.takes_program(&program) || !seen.insert(program.path.clone()) {
                return;
            }
            match Job::of_program(&program, &self.selection.filter) {
                Ok(jobs) => self.send(RunEvent::Jobs(jobs)),
                Err(error) => result = Err(error),
            }
        })?;
        self.warnings.fetch_add(warnings, Ordering::Relaxed);
        result
    }

    /// Makes the host of the profile. Where only a few tests run on it, the others go on without.
    fn host(&self) -> anyhow::Result<()> {
        let Some(profile) = &self.selection.host else {
            return Ok(());
        };
        match Host::new(self.setup.workspace(), profile) {
            Ok(host) => {
                self.send(RunEvent::Host(host.wrapper()));
                *self.host.lock().unwrap_or_else(PoisonError::into_inner) = Some(host);
            }
            Err(error) if self.selection.filter.host == HostUse::All => return Err(error),
            Err(error) => {
                let mut tally = Tally::default();
                tally.fail(format_args!("{error:#}"));
                self.add(tally);
            }
        }
        Ok(())
    }

    /// Sends the tasks that run with the tests: the container image, another kernel.
    fn tasks(&self, built: &Arc<Built>) {
        if self.selection.needs_image() {
            let (setup, own, events) = (self.setup, Arc::clone(built), self.events.clone());
            let task: Task<'a> = Box::new(move || {
                let (image, tally) = made("the container image", image::make(setup, &own));
                drop(events.send(RunEvent::ImageIsSettled(image)));
                Ok(tally)
            });
            self.send(RunEvent::Jobs(vec![Job::task(
                "the container image",
                Load::Computes,
                Need::Agent,
                task,
            )]));
        } else {
            // Its tests say that there is none.
            self.send(RunEvent::ImageIsSettled(None));
        }
        if self.selection.is_whole {
            let (setup, own, all) = (self.setup, Arc::clone(built), self.selection.is_all);
            let task: Task<'a> = Box::new(move || kernels::run_beside(setup, &own, all));
            self.send(RunEvent::Jobs(vec![Job::task(
                "other kernels",
                Load::Computes,
                Need::Agent,
                task,
            )]));
        }
    }

    /// An agent without its BPF object, which costs two builds.
    fn stub(&self) -> anyhow::Result<Option<PathBuf>> {
        let is_wanted = self.selection.is_all && self.selection.end_to_end;
        is_wanted
            .then(|| build::build_stub(self.setup.workspace()))
            .transpose()
    }

    /// The programs and images of a Kubernetes: those that are kept, or with `--all` and where the
    /// subject is named, new ones.
    fn kubernetes(&self) -> Option<PathBuf> {
        if !self.selection.cluster {
            return None;
        }
        let setup = self.setup;
        let is_kept = cluster::find(setup.workspace(), false).is_some();
        if self.selection.is_whole && !self.selection.is_all && !is_kept {
            self.not_run(
                "NOT RUN: the Kubernetes cluster: its programs are not kept on this machine; \
                 `cargo xtask cluster` \
                 or `cargo xtask test --all` makes them"
                    .to_owned(),
            );
            return None;
        }
        let (kubernetes, tally) = made("the Kubernetes cluster", cluster::ensure(setup, false));
        self.add(tally);
        kubernetes
    }

    fn not_run(&self, line: String) {
        let mut tally = Tally::default();
        tally.note_not_run(line);
        self.add(tally);
    }

    fn add(&self, tally: Tally) {
        self.send(RunEvent::Result(tally));
    }

    /// The variables of all tests.
    fn variables(
        &self,
        built: &Built,
        stub: Option<PathBuf>,
        kubernetes: Option<&Path>,
    ) -> Vec<(String, OsString)> {
        let mut command = Command::new("env");
        built.announce(&mut command);
        if let Some(stub) = stub {
            command.env("FLANNEL_AGENT_STUB", stub);
        }
        if let Some(kubernetes) = kubernetes {
            command.env("FLANNEL_KUBERNETES", kubernetes);
            // The store's tests use the API server as well, with another etcd, unless one is
            // named.
            let is_named = env::var_os("KUBE_APISERVER").is_some();
            if let Some(etcd) = self
                .setup
                .workspace()
                .find_command("etcd")
                .filter(|_| !is_named)
            {
                command
                    .env("KUBE_APISERVER", kubernetes.join("bin/kube-apiserver"))
                    .env("ETCD", etcd);
            }
        }
        if let Some(former) = self.former {
            command.env("FLANNEL_FORMER_AGENT", former);
        }
        if let Some(time) = self.soak {
            command.envs(soak(time));
        }
        if self.selection.is_all {
            command.envs(
                LONG.into_iter()
                    .filter(|(name, _)| env::var_os(name).is_none()),
            );
        }
        let pair = |(name, value): (&OsStr, Option<&OsStr>)| {
            Some((name.to_string_lossy().into_owned(), value?.to_owned()))
        };
        command.get_envs().filter_map(pair).collect()
    }
}

/// The result of making something; `None`, and noted as not run, where it cannot be made.
fn made<T>(what: &str, result: anyhow::Result<T>) -> (Option<T>, Tally) {
    let mut tally = Tally::default();
    let made = result.map_err(|error| tally.note_not_run(format!("NOT RUN: {what}: {error:#}")));
    (made.ok(), tally)
}
