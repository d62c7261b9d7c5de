//! Reads the output of Rust's test harness: what to show of it, and what it adds up to. Pure.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

/// The start of the line with a program's results.
pub(super) const RESULT: &str = "test result: ";

/// The most lines of a failed test's output that its report repeats.
const REPEATED: usize = 12;

/// The numbers of tests that passed, failed and were skipped, and the reports of the last two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    failures: Vec<String>,
    not_run: Vec<String>,
}

impl Tally {
    /// Counts one failure that no test reported.
    pub(super) fn fail(&mut self, reason: impl fmt::Display) {
        self.failed += 1;
        self.failures.push(reason.to_string());
    }

    /// Counts one success that no test reported.
    pub(super) fn pass(&mut self) {
        self.passed += 1;
    }

    /// Counts a test that could not run or that could not be judged.
    pub(super) fn skip(&mut self) {
        self.skipped += 1;
    }

    /// The number of tests with any result.
    pub(super) fn run(&self) -> u64 {
        self.passed + self.failed + self.skipped
    }

    /// Returns true if a test passed.
    pub(super) fn has_passed(&self) -> bool {
        self.passed > 0
    }

    /// Keeps a `NOT RUN` line for the end.
    pub(super) fn note_not_run(&mut self, line: String) {
        self.not_run.push(line);
    }

    /// The `NOT RUN` lines, in their order.
    pub(super) fn not_run(&self) -> &[String] {
        &self.not_run
    }

    /// A report of each failure, in their order: its name, and how its test ended.
    pub(super) fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Returns true if nothing failed.
    pub(super) fn is_success(&self) -> bool {
        self.failed == 0
    }

    /// Adds the results of another run, whose failures are then `whose`.
    pub(super) fn add_from(&mut self, whose: &str, mut other: Self) {
        other
            .failures
            .iter_mut()
            .for_each(|failure| *failure = format!("{whose}: {failure}"));
        self.add(other);
    }

    /// Adds another run's results to these.
    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
        self.not_run.extend(other.not_run);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)
        } else {
            Ok(())
        }
    }
}

/// The part of a program's output that a line is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// A line for each test.
    #[default]
    Tests,
    /// The output of passed tests and their names, which only a `NOT RUN` line makes worth showing.
    Successes,
    /// The output of failed tests.
    Failures,
    /// Their names, those without output included.
    Names,
}

/// Follows the output of several test programs, line by line.
#[derive(Debug, Default)]
pub(super) struct OutputReader {
    tally: Tally,
    part: Part,
    /// The test whose output this is.
    test: String,
    /// The passed test whose output this is has already said `NOT RUN`.
    noted: bool,
    /// Tests of this program that said so, and that its result line will count as passed.
    not_run: u64,
    /// The lines that the report of each failed test of this program repeats.
    ends: BTreeMap<String, Vec<String>>,
    /// Of a program without a result so far: its tests that passed, those that failed, and its last
    /// lines.
    unfinished: Unfinished,
}

#[derive(Debug, Default)]
struct Unfinished {
    passed: u64,
    failed: Vec<String>,
    last: VecDeque<String>,
}

impl Unfinished {
    fn read(&mut self, line: &str) {
        let result = line
            .strip_prefix("test ")
            .and_then(|test| test.rsplit_once(" ... "));
        match result {
            Some((_, "ok")) => self.passed += 1,
            Some((test, "FAILED")) => self.failed.push(test.to_owned()),
            _ => {}
        }
        if self.last.len() == REPEATED {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
    }
}

impl OutputReader {
    /// Takes one line; says whether to show it.
    pub(super) fn read(&mut self, line: &str) -> bool {
        if let Some(counts) = line.strip_prefix(RESULT) {
            self.count(counts);
            self.part = Part::Tests;
            self.ends.clear();
            self.unfinished = Unfinished::default();
            return true;
        }
        self.unfinished.read(line);
        if line == "successes:" {
            self.part = Part::Successes;
        } else if line == "failures:" {
            self.part = if self.part == Part::Failures {
                Part::Names
            } else {
                Part::Failures
            };
        } else if let Some(test) = line
            .strip_prefix("---- ")
            .and_then(|line| line.strip_suffix(" stdout ----"))
        {
            self.noted = false;
            test.clone_into(&mut self.test);
        } else if line.starts_with("NOT RUN") {
            self.note(line);
            return false;
        } else if self.part == Part::Failures {
            self.keep_end(line);
        } else if self.part == Part::Names
            && let Some(test) = line.strip_prefix("    ")
        {
            self.report(test);
        }
        self.part != Part::Successes
    }

    /// The sum of all programs read.
    pub(super) fn finish(self) -> Tally {
        self.tally
    }

    /// The sum if the last program has ended in another way than by its result: its tests count as
    /// far as they came, and the report has its last lines, of which the last names the test that
    /// was under way.
    pub(super) fn finish_early(mut self, program: &str, ended: &str) -> Tally {
        let Unfinished {
            passed,
            failed,
            last,
        } = self.unfinished;
        self.tally.passed += passed;
        for test in failed {
            self.tally.fail(test);
        }
        if self.tally.is_success() || !last.is_empty() {
            let report = last
                .iter()
                .fold(format!("{program}: {ended}"), |report, line| {
                    report + "\n    " + line
                });
            self.tally.fail(report);
        }
        self.tally
    }

    /// The harness counts a test that returns early as passed; one that says it did not run is not.
    fn note(&mut self, line: &str) {
        // Such a test says it twice: on standard output and on standard error.
        if !self.tally.not_run.iter().any(|old| old == line) {
            self.tally.note_not_run(line.to_owned());
        }
        if self.part == Part::Successes && !self.noted {
            self.noted = true;
            self.not_run += 1;
        }
    }

    /// Keeps a failed test's output from its panic on: its reason stands there.
    fn keep_end(&mut self, line: &str) {
        if line.contains(" panicked at ") {
            self.ends
                .entry(self.test.clone())
                .or_default()
                .push(line.to_owned());
        } else if let Some(end) = self.ends.get_mut(&self.test)
            && end.len() < REPEATED
            && !line.is_empty()
        {
            end.push(line.to_owned());
        }
    }

    fn report(&mut self, test: &str) {
        let mut report = test.to_owned();
        for line in self.ends.remove(test).unwrap_or_default() {
            report.push_str("\n    ");
            report.push_str(&line);
        }
        self.tally.failures.push(report);
    }

    fn count(&mut self, counts: &str) {
        let counts = counts.split_once(". ").map_or(counts, |(_, counts)| counts);
        for item in counts.split("; ") {
            let Some((number, what)) = item.split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.count_passed(number),
                "failed" => self.tally.failed += number,
                "ignored" => self.tally.skipped += number,
                _ => {}
            }
        }
    }

    fn count_passed(&mut self, number: u64) {
        let skipped = std::mem::take(&mut self.not_run).min(number);
        self.tally.passed += number - skipped;
        self.tally.skipped += skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> (Tally, Vec<&str>) {
        let mut reader = OutputReader::default();
        let shown = output.lines().filter(|line| reader.read(line)).collect();
        (reader.finish(), shown)
    }

    #[test]
    fn a_program_that_is_ended_counts_as_far_as_it_came() {
        let mut reader = OutputReader::default();
        let lines = [
            "running 9 tests",
            "test a::b ... ok",
            "test a::c ... FAILED",
            "chatter",
            "test a::d ... ",
        ];
        for line in lines {
            reader.read(line);
        }
        let tally = reader.finish_early("cluster", "ended after its limit of 9 s");
        assert_eq!(tally.to_string(), "1 passed, 2 failed");
        let [failed, ended] = tally.failures() else {
            panic!("{tally:?}")
        };
        assert_eq!(failed, "a::c");
        assert!(
            ended.starts_with("cluster: ended after its limit of 9 s\n"),
            "{ended}"
        );
        assert!(
            ended.ends_with("\n    chatter\n    test a::d ... "),
            "{ended}"
        );
    }

    #[test]
    fn a_program_that_ends_behind_its_result_is_counted_once() {
        let mut reader = OutputReader::default();
        let result = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured";
        for line in ["test a ... ok", "test b ... ok", result] {
            reader.read(line);
        }
        assert_eq!(
            reader.finish_early("p", "signal 9").to_string(),
            "2 passed, 1 failed"
        );
    }

    #[test]
    fn results_of_several_programs_add_up() {
        let (tally, shown) = read(
            "running 2 tests\n\
             test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished \
             in 0.00s\n\
             test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; \
             finished in 0.01s",
        );
        assert_eq!(tally.to_string(), "5 passed, 1 failed, 1 skipped");
        assert!(!tally.is_success());
        assert_eq!(shown.len(), 3);
    }

    #[test]
    fn a_test_that_says_it_did_not_run_is_skipped_once() {
        let (tally, shown) = read(
            "successes:\n\n---- a stdout ----\nchatter\nNOT RUN: a: no XDP here\nNOT RUN: a: nor \
             there\n\n\
             ---- b stdout ----\nchatter\n\nsuccesses:\n    a\n    b\n\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished \
             in 0.00s",
        );
        assert_eq!(tally.to_string(), "1 passed, 0 failed, 1 skipped");
        assert_eq!(
            tally.not_run(),
            ["NOT RUN: a: no XDP here", "NOT RUN: a: nor there"]
        );
        assert_eq!(shown.len(), 1, "{shown:?}");
    }

    #[test]
    fn the_output_of_failed_tests_is_shown_whole() {
        let output = "successes:\n\nsuccesses:\n    b\n\nfailures:\n\n---- a stdout \
            ----\nchatter\n\nfailures:\n    a\n\n\
                      test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered \
                      out; finished in 0.00s";
        let (tally, shown) = read(output);
        assert_eq!(tally.to_string(), "1 passed, 1 failed");
        assert!(shown.contains(&"chatter"), "{shown:?}");
        assert!(!shown.contains(&"    b"), "{shown:?}");
    }

    #[test]
    fn a_failure_is_reported_with_its_panic() {
        let (tally, _) = read(
            "failures:\n\n---- a stdout ----\nchatter\n\nthread 'a' (7) panicked at \
             tests/a.rs:3:5:\nno route\n\n\
             failures:\n    a\n    b\n\n\
             test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; \
             finished in 0.00s",
        );
        let a = "a\n    thread 'a' (7) panicked at tests/a.rs:3:5:\n    no route";
        assert_eq!(tally.failures(), [a, "b"]);
    }

    #[test]
    fn a_report_repeats_a_bounded_part_of_the_output() {
        let chatter = "chatter\n".repeat(2 * REPEATED);
        let (tally, _) = read(&format!(
            "failures:\n---- a stdout ----\nthread panicked at a.rs\n{chatter}failures:\n    a\n"
        ));
        let [report] = tally.failures() else {
            panic!("{tally:?}")
        };
        assert_eq!(report.lines().count(), 1 + REPEATED);
    }
}
