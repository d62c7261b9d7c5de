//! The output of a kernel's run: marks, the lines of tests between them, and their sum. Pure.

use serde_json::Value;

use super::{
    super::tally::{OutputReader, Tally},
    guest::{BEGIN, BOOTED, END},
    set::{Feature, Work},
};

/// The result of a feature on a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All that shows it passed.
    Passed,
    /// Part of it failed, or did not end.
    Failed,
    /// The machine lacks something that the tests need.
    NotRun,
    /// The mode that `check` offers, as expected.
    Mode(String),
}

impl Outcome {
    /// Its cell of the table.
    pub(super) fn cell(&self) -> &str {
        match self {
            Self::Passed => "PASS",
            Self::Failed => "FAIL",
            Self::NotRun => "NOT RUN",
            Self::Mode(mode) => mode,
        }
    }
}

/// An event that is worth a line of progress.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// The kernel runs our script.
    Booted,
    /// A feature's tests begin.
    Begins(usize),
    /// They have ended.
    Ended(usize, Outcome),
    /// A line of their output.
    Output(&'a str),
}

/// Follows a run.
#[derive(Debug)]
pub(super) struct RunReader<'a> {
    features: &'a [&'a Feature],
    mode: &'a str,
    current: Option<(usize, OutputReader, String)>,
    outcomes: Vec<Option<Outcome>>,
    tally: Tally,
    has_read: bool,
}

impl<'a> RunReader<'a> {
    /// A run of these features, in which `check` is to offer `mode`.
    pub(super) fn new(features: &'a [&'a Feature], mode: &'a str) -> Self {
        let (outcomes, tally) = (vec![None; features.len()], Tally::default());
        Self {
            features,
            mode,
            current: None,
            outcomes,
            tally,
            has_read: false,
        }
    }

    /// Returns true once there was a line: those of a kernel go elsewhere.
    pub(super) const fn has_read(&self) -> bool {
        self.has_read
    }

    /// Takes one line; an event, unless the line is not worth showing.
    pub(super) fn read<'l>(&mut self, line: &'l str) -> Option<Event<'l>> {
        self.has_read = true;
        if line.starts_with(BOOTED) {
            return Some(Event::Booted);
        }
        if let Some(number) = line
            .strip_prefix(BEGIN)
            .and_then(|number| number.parse().ok())
        {
            self.current = Some((number, OutputReader::default(), String::new()));
            return Some(Event::Begins(number));
        }
        if let Some(status) = line.strip_prefix(END) {
            let (number, reader, text) = self.current.take()?;
            let outcome = self.judge(number, reader.finish(), &text, status);
            self.outcomes[number] = Some(outcome.clone());
            return Some(Event::Ended(number, outcome));
        }
        let Some((number, reader, text)) = &mut self.current else {
            return Some(Event::Output(line));
        };
        if matches!(self.features[*number].work, Work::Check) {
            text.push_str(line);
            return None;
        }
        reader.read(line).then_some(Event::Output(line))
    }

    /// The outcome of each feature, in their order, and the sum. What has not ended has failed.
    pub(super) fn finish(mut self) -> (Vec<Outcome>, Tally) {
        let outcomes = self
            .outcomes
            .into_iter()
            .zip(self.features)
            .map(|(outcome, feature)| {
                outcome.unwrap_or_else(|| {
                    self.tally
                        .fail(format_args!("{} has not ended", feature.name));
                    Outcome::Failed
                })
            });
        (outcomes.collect(), self.tally)
    }

    fn judge(&mut self, number: usize, mut own: Tally, text: &str, status: &str) -> Outcome {
        let Feature { name, work, .. } = self.features[number];
        let outcome = match work {
            Work::Check => {
                let offered = offered(text);
                if offered.as_deref() == Some(self.mode) {
                    own.pass();
                    Outcome::Mode(self.mode.to_owned())
                } else {
                    let found = offered.as_deref().unwrap_or("no mode");
                    own.fail(format_args!("{name}: {found} in place of {}", self.mode));
                    Outcome::Failed
                }
            }
            Work::Tests(_, tests) => {
                // A program that died has no summary line, and a test that no longer exists is
                // missing from the sum.
                if own.is_success() && (status != "0" || own.run() != tests.len() as u64) {
                    own.fail(format_args!(
                        "{name}: status {status}, {} of {} tests",
                        own.run(),
                        tests.len()
                    ));
                }
                match (own.is_success(), own.has_passed()) {
                    (false, _) => Outcome::Failed,
                    (true, true) => Outcome::Passed,
                    (true, false) => Outcome::NotRun,
                }
            }
        };
        self.tally.add(own);
        outcome
    }
}

/// The mode in the document of `check -o json`.
fn offered(document: &str) -> Option<String> {
    let document: Value = serde_json::from_str(document).ok()?;
    Some(document["best"]["mode"].as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: Feature = Feature {
        name: "check",
        since: "5.10",
        until: None,
        modules: &[],
        work: Work::Check,
    };
    const TWO: Feature = Feature {
        name: "two",
        since: "5.10",
        until: None,
        modules: &[],
        work: Work::Tests("t", &["a", "b"]),
    };

    fn outcomes(output: &str) -> (Vec<Outcome>, String) {
        let mut reader = RunReader::new(&[&CHECK, &TWO], "fast");
        output.lines().for_each(|line| drop(reader.read(line)));
        let (outcomes, tally) = reader.finish();
        (outcomes, tally.to_string())
    }

    fn run(mode: &str, result: &str, status: u32) -> String {
        format!(
            "@booted 6.1.0\n@begin 0\n{{\n\"best\": {{\"mode\": \"{mode}\"}}}}\n@end 1\n@begin 1\n\
             test result: ok. {result}; 9 filtered out\n@end {status}\n"
        )
    }

    #[test]
    fn a_mode_and_two_tests_pass() {
        let (outcomes, sum) = outcomes(&run("fast", "2 passed; 0 failed; 0 ignored", 0));
        assert_eq!(
            outcomes,
            [Outcome::Mode("fast".to_owned()), Outcome::Passed]
        );
        assert_eq!(sum, "3 passed, 0 failed");
    }

    #[test]
    fn another_mode_a_missing_test_and_a_bad_status_are_failures() {
        let failed = [Outcome::Failed, Outcome::Failed];
        assert_eq!(
            outcomes(&run("encap", "1 passed; 0 failed; 0 ignored", 0)).0,
            failed
        );
        assert_eq!(
            outcomes(&run("kernel", "2 passed; 0 failed; 0 ignored", 137)).0,
            failed
        );
    }

    #[test]
    fn what_the_end_of_the_machine_cut_off_has_failed() {
        let whole = run("fast", "2 passed; 0 failed; 0 ignored", 0);
        let (outcomes, sum) = outcomes(whole.split("test result").next().expect("a part"));
        assert_eq!(
            outcomes,
            [Outcome::Mode("fast".to_owned()), Outcome::Failed]
        );
        assert_eq!(sum, "1 passed, 1 failed");
    }

    #[test]
    fn a_line_of_the_first_script_is_one_that_was_read() {
        let mut reader = RunReader::new(&[], "fast");
        assert!(!reader.has_read());
        assert_eq!(
            reader.read("init: cannot mount"),
            Some(Event::Output("init: cannot mount"))
        );
        assert!(reader.has_read());
    }

    #[test]
    fn a_test_that_says_it_did_not_run_is_no_pass() {
        let both = "successes:\n---- a stdout ----\nNOT RUN: a: no module\n---- b stdout ----\nNOT \
            RUN: b: no module\n";
        let whole = run("fast", "2 passed; 0 failed; 0 ignored", 0)
            .replace("@begin 1\n", &format!("@begin 1\n{both}"));
        assert_eq!(outcomes(&whole).0[1], Outcome::NotRun);
    }
}
