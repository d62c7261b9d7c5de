//! Reads the output of Rust's test harness: what to show of it, and what it adds up to. Pure.

use std::fmt;

/// The start of the line with a program's results.
pub(super) const RESULT: &str = "test result: ";

/// The numbers of tests that passed, failed and were skipped, and the reports of the skipped ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    not_run: Vec<String>,
}

impl Tally {
    /// Counts one failure that no test reported.
    pub(super) fn fail(&mut self) {
        self.failed += 1;
    }

    /// Counts one success that no test reported.
    pub(super) fn pass(&mut self) {
        self.passed += 1;
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

    /// Returns true if nothing failed.
    pub(super) fn is_success(&self) -> bool {
        self.failed == 0
    }

    /// Adds another run's results to these.
    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.not_run.extend(other.not_run);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 { write!(f, ", {} skipped", self.skipped) } else { Ok(()) }
    }
}

/// Follows the output of several test programs, line by line.
#[derive(Debug, Default)]
pub(super) struct OutputReader {
    tally: Tally,
    /// Within the output of passed tests, which only a `NOT RUN` line makes worth showing.
    in_successes: bool,
    /// The passed test whose output this is has already said `NOT RUN`.
    noted: bool,
    /// Tests of this program that said so, and that its result line will count as passed.
    not_run: u64,
}

impl OutputReader {
    /// Takes one line; says whether to show it.
    pub(super) fn read(&mut self, line: &str) -> bool {
        if let Some(counts) = line.strip_prefix(RESULT) {
            self.count(counts);
            self.in_successes = false;
        } else if line == "successes:" {
            self.in_successes = true;
        } else if line == "failures:" {
            self.in_successes = false;
        } else if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.noted = false;
        } else if line.starts_with("NOT RUN") {
            self.note(line);
            return true;
        }
        !self.in_successes
    }

    /// The sum of all programs read.
    pub(super) fn finish(self) -> Tally {
        self.tally
    }

    /// The harness counts a test that returns early as passed; one that says it did not run is not.
    fn note(&mut self, line: &str) {
        self.tally.note_not_run(line.to_owned());
        if self.in_successes && !self.noted {
            self.noted = true;
            self.not_run += 1;
        }
    }

    fn count(&mut self, counts: &str) {
        let counts = counts.split_once(". ").map_or(counts, |(_, counts)| counts);
        for item in counts.split("; ") {
            let Some((number, what)) = item.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
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
    fn results_of_several_programs_add_up() {
        let (tally, shown) = read(
            "running 2 tests\n\
             test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.01s",
        );
        assert_eq!(tally.to_string(), "5 passed, 1 failed, 1 skipped");
        assert!(!tally.is_success());
        assert_eq!(shown.len(), 3);
    }

    #[test]
    fn a_test_that_says_it_did_not_run_is_skipped_once() {
        let (tally, shown) = read(
            "successes:\n\n---- a stdout ----\nchatter\nNOT RUN: a: no XDP here\nNOT RUN: a: nor there\n\n\
             ---- b stdout ----\nchatter\n\nsuccesses:\n    a\n    b\n\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        assert_eq!(tally.to_string(), "1 passed, 0 failed, 1 skipped");
        assert_eq!(tally.not_run(), ["NOT RUN: a: no XDP here", "NOT RUN: a: nor there"]);
        assert_eq!(shown.len(), 3, "{shown:?}");
    }

    #[test]
    fn the_output_of_failed_tests_is_shown_whole() {
        let output = "successes:\n\nsuccesses:\n    b\n\nfailures:\n\n---- a stdout ----\nchatter\n\nfailures:\n    a\n\n\
                      test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        let (tally, shown) = read(output);
        assert_eq!(tally.to_string(), "1 passed, 1 failed");
        assert!(shown.contains(&"chatter"), "{shown:?}");
        assert!(!shown.contains(&"    b"), "{shown:?}");
    }
}
