//! The main loop of a test run: it starts the jobs that there is room for, and takes their results.
//!
//! Jobs arrive while the compiler still runs. The loop owns all state; threads only send it events.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    thread::{self, Scope},
    time::{Duration, Instant},
};

use super::{
    idle::{self, IdleTime},
    job::{Job, JobWork, Need},
    load::{self, Candidate, Capacity, Load},
    pressure,
    process::{Ran, Surroundings, Tests},
    tally::Tally,
    timings::{Timing, Timings},
};
use crate::workspace::Workspace;

/// An event of a run.
pub(super) enum RunEvent<'a> {
    /// Jobs that can be started once what they need is there.
    Jobs(Vec<Job<'a>>),
    /// The machine has been set up: variables of all tests from now on.
    SetUp(Vec<(String, OsString)>),
    /// The command that enters the host of a profile.
    Host(Vec<OsString>),
    /// The agent and what it is run with have been built.
    AgentIsReady,
    /// The result of something that is not a job.
    Result(Tally),
    /// The container image has been made, or cannot be made.
    ImageIsSettled(Option<PathBuf>),
    /// The compiler has ended: nothing more comes.
    Compiled(anyhow::Result<()>),
    /// A job has ended.
    Ended(Box<Ended<'a>>),
}

/// A job that has ended.
pub(super) struct Ended<'a> {
    job: Job<'a>,
    result: anyhow::Result<Ran>,
}

/// The state of a run.
pub(super) struct Runner<'a> {
    workspace: &'a Workspace,
    surroundings: Surroundings,
    capacity: Capacity,
    idle: IdleTime,
    events: Sender<RunEvent<'a>>,
    pending: Vec<Job<'a>>,
    running: Vec<Load>,
    /// The needs of jobs that are met.
    met: BTreeSet<Need>,
    is_compiled: bool,
    /// Names of tests that were measured on a busy machine once.
    retried: BTreeSet<String>,
    tally: Tally,
    timings: Timings,
}

impl<'a> Runner<'a> {
    /// A run whose threads send their events to `events`.
    pub(super) fn new(
        workspace: &'a Workspace,
        surroundings: Surroundings,
        events: Sender<RunEvent<'a>>,
    ) -> Self {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        Self {
            workspace,
            surroundings,
            capacity: Capacity::of(cpus),
            idle: IdleTime::new(),
            events,
            pending: Vec::new(),
            running: Vec::new(),
            met: BTreeSet::from([Need::Nothing]),
            is_compiled: false,
            retried: BTreeSet::new(),
            tally: Tally::default(),
            timings: Timings::default(),
        }
    }

    /// Runs until all jobs have ended. Returns their results and times.
    pub(super) fn run<'scope>(
        mut self,
        scope: &'scope Scope<'scope, '_>,
        events: &Receiver<RunEvent<'a>>,
    ) -> (Tally, Timings)
    where
        'a: 'scope,
    {
        loop {
            self.start_all(scope);
            // Whatever fits an idle machine has been started.
            if self.is_compiled && self.running.is_empty() {
                break;
            }
            match events.recv_timeout(idle::PERIOD) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Some(idle) = self.idle.percentage() {
                self.capacity = self.capacity.after(idle);
            }
        }
        for job in std::mem::take(&mut self.pending) {
            self.tally.fail(format_args!(
                "{}: not started, because its parts were not built",
                job.name
            ));
        }
        (self.tally, self.timings)
    }

    fn take(&mut self, event: RunEvent<'a>) {
        match event {
            RunEvent::Jobs(jobs) => {
                self.pending.extend(jobs);
                self.pending
                    .sort_by_key(|job| (job.load == Load::Alone, u32::MAX - job.seconds));
            }
            RunEvent::SetUp(variables) => {
                self.met.insert(Need::Lab);
                self.surroundings.variables.extend(variables);
            }
            RunEvent::Host(wrapper) => self.surroundings.wrapper = wrapper,
            RunEvent::AgentIsReady => drop(self.met.insert(Need::Agent)),
            RunEvent::Result(tally) => self.tally.add(tally),
            RunEvent::ImageIsSettled(image) => {
                self.met.insert(Need::Image);
                let variable = image.map(|path| ("FLANNEL_IMAGE".to_owned(), OsString::from(path)));
                self.surroundings.variables.extend(variable);
            }
            RunEvent::Compiled(result) => {
                self.is_compiled = true;
                if let Err(error) = result {
                    eprintln!("xtask: {error:#}");
                    self.tally.fail(format_args!("{error:#}"));
                }
            }
            RunEvent::Ended(ended) => self.end(*ended),
        }
    }

    fn capacity(&self) -> Capacity {
        if self.is_compiled {
            self.capacity
        } else {
            self.capacity.while_compiling()
        }
    }

    fn start_all<'scope>(&mut self, scope: &'scope Scope<'scope, '_>)
    where
        'a: 'scope,
    {
        loop {
            let candidates: Vec<_> = self
                .pending
                .iter()
                .map(|job| Candidate {
                    load: job.load,
                    is_ready: self.met.contains(&job.need),
                })
                .collect();
            // A test with [`Load::Alone`] waits for the compiler, which would run at the same time.
            let is_alone = |index: &usize| candidates[*index].load == Load::Alone;
            let next = load::next(&candidates, &self.running, self.capacity());
            let Some(index) = next.filter(|index| self.is_compiled || !is_alone(index)) else {
                return;
            };
            let job = self.pending.remove(index);
            self.running.push(job.load);
            let (mut surroundings, workspace, events) = (
                self.surroundings.clone(),
                self.workspace,
                self.events.clone(),
            );
            if !job.is_on_host {
                surroundings.wrapper.clear();
            }
            scope.spawn(move || {
                let (job, result) = run_job(workspace, &surroundings, job);
                // A main loop that has ended needs no events.
                drop(events.send(RunEvent::Ended(Box::new(Ended { job, result }))));
            });
        }
    }

    fn end(&mut self, ended: Ended<'a>) {
        let Ended { mut job, result } = ended;
        if let Some(index) = self.running.iter().position(|load| *load == job.load) {
            self.running.swap_remove(index);
        }
        let ran = match result {
            Ok(ran) => ran,
            Err(error) => {
                self.tally.fail(format_args!("{}: {error:#}", job.name));
                println!("FAILED           {}: {error:#}", job.name);
                return;
            }
        };
        if ran.is_not_judged && self.retried.insert(job.name.clone()) {
            println!(
                "again  {}  {}: the machine was busy",
                seconds(ran.wall),
                job.name
            );
            job.load = Load::Alone;
            self.pending.push(job);
            return;
        }
        report(&job.name, &ran);
        self.timings.add(Timing {
            name: job.name,
            wall: ran.wall,
            cpu: ran.cpu,
            load: job.load,
        });
        self.tally.add(ran.tally);
    }
}

/// Runs a job; a job of tests can be run again.
fn run_job<'a>(
    workspace: &Workspace,
    surroundings: &Surroundings,
    job: Job<'a>,
) -> (Job<'a>, anyhow::Result<Ran>) {
    let Job {
        name,
        load,
        need,
        seconds,
        is_shown,
        is_on_host,
        work,
    } = job;
    match work {
        JobWork::Tests { program, arguments } => {
            let tests = Tests {
                program: &program,
                arguments: &arguments,
            };
            let result = if arguments.iter().any(|argument| argument == "--nocapture") {
                surroundings.one(workspace, &name, tests)
            } else {
                let show = |line: &str| show_line(is_shown.then_some(&name), line);
                surroundings.many(workspace, &name, tests, show)
            };
            (
                Job {
                    name,
                    load,
                    need,
                    seconds,
                    is_shown,
                    is_on_host,
                    work: JobWork::Tests { program, arguments },
                },
                result,
            )
        }
        JobWork::Task(task) => {
            let started = Instant::now();
            let result = task().map(|tally| Ran {
                tally,
                is_not_judged: false,
                wall: started.elapsed(),
                cpu: Duration::ZERO,
                shown: Vec::new(),
            });
            let done = JobWork::Task(Box::new(|| Ok(Tally::default())));
            (
                Job {
                    name,
                    load,
                    need,
                    seconds,
                    is_shown,
                    is_on_host,
                    work: done,
                },
                result,
            )
        }
    }
}

/// Shows a line of a program with many tests: all of one that is followed, the failures of others.
fn show_line(name: Option<&String>, line: &str) {
    let is_of_a_failure =
        || !line.is_empty() && !line.starts_with("test ") && !line.starts_with("running ");
    match name {
        Some(name) => println!("{}: {line}", name.rsplit(": ").next().unwrap_or(name)),
        None if is_of_a_failure() => println!("{line}"),
        None => {}
    }
}

/// Prints a job's result, and of a failure what a person needs to see.
fn report(name: &str, ran: &Ran) {
    let word = match (
        ran.tally.is_success(),
        ran.tally.has_passed() || ran.tally.run() == 0,
    ) {
        (false, _) => "FAILED",
        (true, true) => "ok    ",
        (true, false) => "NOT RUN",
    };
    let sum = if ran.tally.run() > 1 {
        format!(" ({})", ran.tally)
    } else {
        String::new()
    };
    let cpu = format!("({:.1} s CPU)", ran.cpu.as_secs_f32());
    println!("{word:<7}{} {cpu:>13}  {name}{sum}", seconds(ran.wall));
    if !ran.tally.is_success() {
        ran.shown.iter().for_each(|line| println!("    {line}"));
        println!("    {}", pressure::describe());
    }
}

fn seconds(time: Duration) -> String {
    format!("{:>6.1} s", time.as_secs_f32())
}
