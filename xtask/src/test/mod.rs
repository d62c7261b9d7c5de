//! `test`: set up, build, then both halves of the tests, or a part of them on other kernels; one
//! sum.
//!
//! The last line is always `N passed, M failed`, with `, K skipped` behind it when there were any;
//! the line before it is the duration. What keeps tests from being run at all, set-up and
//! compilation included, counts as a failure; what this machine cannot do is printed as `NOT RUN`.
//! Both are repeated before the sum, the failures last. A test counts as skipped when it says so
//! itself, by printing a line that starts with `NOT RUN`.

mod kernels;
mod leftovers;
mod lines;
mod plan;
mod subjects;
mod suite;
mod tally;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use self::tally::Tally;
use crate::{cli::TestOptions, setup::Setup};

/// Runs what the options choose. Errors are printed and counted, so that the sum stays the last
/// line.
pub(crate) fn run(setup: &Setup<'_>, options: &TestOptions) -> ExitCode {
    let start = Instant::now();
    let mut tally = Tally::default();
    let result = if options.kernels.is_empty() {
        plan::run(setup, options, start, &mut tally)
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
    if tally.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{} min {} s", seconds / 60, seconds % 60)
}
