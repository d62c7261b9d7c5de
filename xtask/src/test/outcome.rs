//! The output of one test, and what it says of its result. Pure.

use std::collections::VecDeque;

use super::tally::{RESULT, Tally};

/// The lines of a failed test that are shown: its last ones.
const SHOWN: usize = 120;
/// The lines that are repeated before the sum.
const REPEATED: usize = 12;
/// The start of a line that says what this machine cannot do.
const NOT_RUN: &str = "NOT RUN";
/// The start of a line that says that time was measured and means nothing.
const NOT_JUDGED: &str = "NOT JUDGED";

/// Follows the output of one test that is run with `--exact --nocapture`.
#[derive(Debug, Default)]
pub(super) struct OneTest {
    lines: VecDeque<String>,
    not_run: Vec<String>,
    has_passed: bool,
    is_ignored: bool,
}

impl OneTest {
    /// Takes one line.
    pub(super) fn read(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix(RESULT) {
            self.has_passed = counts.contains(" 1 passed;");
            self.is_ignored = counts.contains(" 1 ignored;");
        }
        if (line.starts_with(NOT_RUN) || line.starts_with(NOT_JUDGED))
            && !self.not_run.iter().any(|old| old == line)
        {
            self.not_run.push(line.to_owned());
        }
        if self.lines.len() == SHOWN {
            self.lines.pop_front();
        }
        self.lines.push_back(line.to_owned());
    }

    /// Returns true if the test measured time on a busy machine, so that it is worth another try.
    pub(super) fn is_not_judged(&self) -> bool {
        self.has_passed && self.not_run.iter().any(|line| line.starts_with(NOT_JUDGED))
    }

    /// The last lines, for people.
    pub(super) fn shown(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// The result. `ended` says how the process ended, where that was not by a test's result.
    pub(super) fn tally(&self, name: &str, ended: Option<&str>) -> Tally {
        let mut tally = Tally::default();
        if ended.is_none() && (self.is_ignored || (self.has_passed && !self.not_run.is_empty())) {
            tally.skip();
        } else if ended.is_none() && self.has_passed {
            tally.pass();
        } else {
            tally.fail(self.report(name, ended));
        }
        self.not_run
            .iter()
            .for_each(|line| tally.note_not_run(line.clone()));
        tally
    }

    /// The name, how the process ended, and the lines that say why: from the panic or the returned
    /// error on, or the last ones.
    fn report(&self, name: &str, ended: Option<&str>) -> String {
        let is_reason =
            |line: &String| line.contains(" panicked at ") || line.starts_with("Error: ");
        let first = self.lines.iter().position(is_reason);
        let first = first.unwrap_or_else(|| self.lines.len().saturating_sub(REPEATED));
        let lines = self
            .lines
            .iter()
            .skip(first)
            .filter(|line| !line.is_empty())
            .take(REPEATED);
        let head = ended.map_or_else(|| name.to_owned(), |ended| format!("{name}: {ended}"));
        lines.fold(head, |report, line| report + "\n    " + line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> OneTest {
        let mut test = OneTest::default();
        text.lines().for_each(|line| test.read(line));
        test
    }

    const PASSED: &str =
        "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out";

    #[test]
    fn a_test_passes_by_its_result() {
        assert_eq!(
            read(PASSED).tally("a", None).to_string(),
            "1 passed, 0 failed"
        );
        assert_eq!(read("").tally("a", None).to_string(), "0 passed, 1 failed");
        assert_eq!(
            read(PASSED).tally("a", Some("signal 9")).to_string(),
            "0 passed, 1 failed"
        );
    }

    #[test]
    fn a_test_that_says_that_it_did_not_run_is_skipped_once() {
        let test = read(&format!(
            "NOT RUN: a: no XDP here\nNOT RUN: a: no XDP here\n{PASSED}"
        ));
        let tally = test.tally("a", None);
        assert_eq!(
            (tally.to_string().as_str(), tally.not_run().len()),
            ("0 passed, 0 failed, 1 skipped", 1)
        );
        assert!(!test.is_not_judged());
    }

    #[test]
    fn a_measurement_on_a_busy_machine_is_worth_another_try() {
        assert!(read(&format!("NOT JUDGED: the machine was busy\n{PASSED}")).is_not_judged());
        assert!(!read("NOT JUDGED: the machine was busy\n").is_not_judged());
    }

    #[test]
    fn the_report_begins_with_the_reason() {
        let test = read(
            "chatter\nError: no route\n\nCaused by:\n    here\ntest result: FAILED. 0 passed; 1 \
             failed;",
        );
        let tally = test.tally("a", None);
        let report = "a\n    Error: no route\n    Caused by:\n        here\n    test result: \
            FAILED. 0 passed; 1 failed;";
        assert_eq!(tally.failures(), [report]);
    }
}
