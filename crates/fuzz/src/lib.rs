//! Fuzz targets as unit tests.
//!
//! A target is a function of bytes that panics when a promise is broken. [`run`] calls it with
//! mutated inputs for a second, or for as long as `cargo xtask fuzz` says. Inputs start from seeds
//! and from the corpus of earlier runs. If the crates are compiled with counters of coverage, as by
//! that verb, an input that reaches new code joins the corpus.
//!
//! An input that panics, or takes longer than ten seconds, is kept in a file; the command that
//! repeats it is printed. Targets stand next to the code they call, which is private.

mod corpus;
mod coverage;
mod mutate;
mod quiet;
mod repetition;
mod watchdog;

use std::{
    env, fs,
    panic::{self, AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    time::{Duration, Instant},
};

use self::{
    corpus::Corpus, coverage::Coverage, mutate::Random, quiet::Quiet, repetition::repeat,
    watchdog::Watchdog,
};

/// The duration of a run, in seconds.
const SECONDS: &str = "FLANNEL_FUZZ_SECONDS";
/// A file with the only input of a run.
const INPUT: &str = "FLANNEL_FUZZ_INPUT";
/// The directory of corpora and kept inputs.
const DIRECTORY: &str = "FLANNEL_FUZZ_DIR";
/// The longest input.
const LENGTH_MAX: usize = 4096;

/// Calls a target with mutated inputs until the time is over.
///
/// # Panics
/// The target panicked.
pub fn run(name: &str, seeds: &[&[u8]], target: impl Fn(&[u8])) {
    if let Some(path) = env::var_os(INPUT) {
        let input = fs::read(&path).expect("the input of FLANNEL_FUZZ_INPUT");
        target(&input);
        println!("fuzz {name}: the input does not fail");
        return;
    }
    let seconds = env::var(SECONDS)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let directory = env::var_os(DIRECTORY)
        .map_or_else(default_directory, PathBuf::from)
        .join(name);
    let (start, end) = (Instant::now(), Duration::from_secs(seconds));
    let mut corpus = Corpus::load(directory, seeds, env::var_os(DIRECTORY).is_some());
    let (mut coverage, watchdog) = (
        Coverage::default(),
        Watchdog::start(name, corpus.directory()),
    );
    let mut random = Random::new();
    let (_quiet, mut executions) = (Quiet::start(), 0_u64);
    // Each input of the corpus as it is, and mutated ones afterwards.
    let mut waiting = corpus.inputs().to_vec();
    while start.elapsed() < end || !waiting.is_empty() {
        let input = match waiting.pop() {
            Some(input) => input,
            None => mutate::mutated(corpus.inputs(), &mut random, LENGTH_MAX),
        };
        Coverage::reset();
        watchdog.begin(&input);
        let outcome = catch_unwind(AssertUnwindSafe(|| target(&input)));
        watchdog.end();
        executions += 1;
        if let Err(panic) = outcome {
            let path = corpus.keep_failure(&input);
            eprintln!("{}\n{}", Quiet::last(), repeat(name, &path));
            panic::resume_unwind(panic);
        }
        if coverage.is_new() {
            corpus.add(input);
        }
    }
    let covered = coverage
        .reached()
        .map_or_else(String::new, |places| format!(", {places} places reached"));
    let inputs = corpus.inputs().len();
    println!(
        "fuzz {name}: {executions} executions in {} s, {inputs} inputs{covered}",
        start.elapsed().as_secs()
    );
}

/// The directory of a plain test run: it keeps only inputs that fail.
fn default_directory() -> PathBuf {
    env::temp_dir().join("flannel-fuzz")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn seeds_and_mutated_inputs_are_tried() {
        let (seen, others) = (Cell::new(false), Cell::new(0_u32));
        run("self_test", &[b"seed"], |input| {
            seen.set(seen.get() || input == b"seed");
            others.set(others.get() + u32::from(input != b"seed"));
        });
        assert!(seen.get() && others.get() > 100, "{} others", others.get());
    }

    #[test]
    fn an_input_that_panics_is_kept() {
        let outcome = catch_unwind(|| {
            run("self_test_panic", &[b"good"], |input| {
                assert!(!input.contains(&b'!'), "an exclamation mark");
            });
        });
        assert!(outcome.is_err(), "a mutation has every byte");
        let directory = default_directory().join("self_test_panic");
        let kept: Vec<_> = fs::read_dir(&directory)
            .expect("the directory")
            .flatten()
            .collect();
        assert!(
            kept.iter()
                .all(|file| fs::read(file.path()).is_ok_and(|input| input.contains(&b'!')))
        );
        assert!(!kept.is_empty());
        fs::remove_dir_all(directory).expect("the directory goes");
    }
}
