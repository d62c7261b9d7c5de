//! `test`: set up, build, and run the tests, or a part of them on other kernels; one sum.
//!
//! The last line is always `N passed, M failed`, with `, K skipped` behind it when there were any;
//! the line before it is the duration. What keeps tests from being run at all, set-up and
//! compilation included, counts as a failure; what this machine cannot do is printed as `NOT RUN`.
//! Both are repeated before the sum, the failures last. A test counts as skipped when it says so
//! itself, by printing a line that starts with `NOT RUN`.

mod host;
mod idle;
mod job;
mod kernels;
mod leftovers;
mod lines;
mod load;
mod outcome;
mod plan;
mod pressure;
mod process;
mod programs;
mod runner;
mod selection;
mod stress;
mod tally;
mod timings;
mod weights;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use self::{stress::Stress, tally::Tally};
use crate::{cli::TestOptions, setup::Setup};

/// Runs what the options choose. Errors are printed and counted, so that the sum stays the last
/// line.
pub(crate) fn run(setup: &Setup<'_>, options: &TestOptions) -> ExitCode {
    let start = Instant::now();
    let mut tally = Tally::default();
    let result = if options.kernels.is_empty() {
        run_here(setup, options, &mut tally)
    } else {
        kernels::run(setup, &options.kernels, &options.filter, &mut tally)
    };
    if let Err(error) = result {
        tally.fail(format_args!("{error:#}"));
    }
    for line in tally.not_run() {
        println!("{line}");
    }
    for failure in tally.failures() {
        println!("FAILED: {failure}");
    }
    println!("test: took {}", minutes(start.elapsed()));
    println!("{tally}");
    if tally.is_success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs the tests on this machine.
fn run_here(setup: &Setup<'_>, options: &TestOptions, tally: &mut Tally) -> anyhow::Result<()> {
    if options.clippy {
        let workspace = setup.workspace().with_clippy()?;
        return run_turns(&setup.with(&workspace), options, tally);
    }
    run_turns(setup, options, tally)
}

/// Runs the tests, under load several times, and keeps what each took.
fn run_turns(setup: &Setup<'_>, options: &TestOptions, tally: &mut Tally) -> anyhow::Result<()> {
    let turns = if options.stress {
        &UNDER_STRESS[..]
    } else {
        &[Turn::All]
    };
    let stress = options
        .stress
        .then(|| Stress::start(setup.workspace()))
        .transpose()?;
    for (number, turn) in turns.iter().enumerate() {
        if stress.is_some() {
            println!(
                "test: turn {} of {} under load: {turn:?}",
                number + 1,
                turns.len()
            );
        }
        let mut timings = plan::run(setup, options, *turn, tally)?;
        let table = timings.keep(setup.workspace())?;
        if options.timings {
            print!("{table}");
        }
    }
    Ok(())
}

/// The tests of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// All that the options choose.
    All,
    /// Of those only the ones that measure time.
    Measurements,
}

/// The turns of `--stress`.
const UNDER_STRESS: [Turn; 7] = [
    Turn::All,
    Turn::All,
    Turn::Measurements,
    Turn::Measurements,
    Turn::Measurements,
    Turn::Measurements,
    Turn::Measurements,
];

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{} min {} s", seconds / 60, seconds % 60)
}
