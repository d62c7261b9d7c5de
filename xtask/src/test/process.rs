//! One process of a test run: started, followed to its end or its deadline, and measured.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::{
    lines::{self, Ending},
    outcome::OneTest,
    programs::TestProgram,
    tally::{OutputReader, Tally},
};
use crate::{lab::process_time, workspace::Workspace};

/// The time after which a test is ended: its own deadlines are shorter by far.
pub(super) const DEADLINE: Duration = Duration::from_mins(20);
/// The lines of a file that a failed test left, such as the log of an agent.
const TAIL: usize = 25;

/// The things that every process of a run gets.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// Variables of its environment.
    pub(super) variables: Vec<(String, OsString)>,
    /// A command that starts it, such as one that enters the namespaces of a host profile.
    pub(super) wrapper: Vec<OsString>,
    /// The directory for what failed tests leave.
    pub(super) reports: PathBuf,
    /// The time after which a test is ended.
    pub(super) deadline: Duration,
}

/// The result of a process.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) tally: Tally,
    /// It measured time on a busy machine.
    pub(super) is_not_judged: bool,
    pub(super) wall: Duration,
    /// The time of all CPUs, with that of its children.
    pub(super) cpu: Duration,
    /// The lines to show of a failure.
    pub(super) shown: Vec<String>,
}

impl Surroundings {
    /// Runs one test.
    pub(super) fn one(
        &self,
        workspace: &Workspace,
        name: &str,
        command: Tests<'_>,
    ) -> anyhow::Result<Ran> {
        let report = self.reports.join(name.replace("::", "-"));
        clear(&report)?;
        let mut test = OneTest::default();
        let started = Instant::now();
        let variable = (
            "FLANNEL_TEST_REPORT".to_owned(),
            report.clone().into_os_string(),
        );
        let (ended, cpu) = self.follow(workspace, command, &[variable], |line| test.read(line))?;
        let (wall, tally) = (started.elapsed(), test.tally(name, ended.as_deref()));
        let mut shown = Vec::new();
        if !tally.is_success() {
            shown.extend(test.shown().map(str::to_owned));
            shown.extend(left(&report));
        }
        clear(&report)?;
        Ok(Ran {
            is_not_judged: test.is_not_judged(),
            tally,
            wall,
            cpu,
            shown,
        })
    }

    /// Runs the tests of a program; `show` gets each line that is worth showing.
    pub(super) fn many(
        &self,
        workspace: &Workspace,
        name: &str,
        command: Tests<'_>,
        mut show: impl FnMut(&str),
    ) -> anyhow::Result<Ran> {
        let mut reader = OutputReader::default();
        let started = Instant::now();
        let (ended, cpu) = self.follow(workspace, command, &[], |line| {
            if reader.read(line) {
                show(line);
            }
        })?;
        let tally = match ended {
            Some(ended) => reader.finish_early(name, &ended),
            None => reader.finish(),
        };
        Ok(Ran {
            tally,
            is_not_judged: false,
            wall: started.elapsed(),
            cpu,
            shown: Vec::new(),
        })
    }

    /// Starts the process and takes its lines. Returns how it ended, if not with status 0 or with
    /// the status of a failed test, and the time of CPUs that it took.
    fn follow(
        &self,
        workspace: &Workspace,
        tests: Tests<'_>,
        more: &[(String, OsString)],
        mut take: impl FnMut(&str),
    ) -> anyhow::Result<(Option<String>, Duration)> {
        let mut limit = TestLimit::new(self.deadline, Instant::now());
        let (output, writer) = io::pipe().context("cannot make a pipe")?;
        let mut child = self.command(workspace, &tests, more, writer)?;
        let ending = lines::follow_output(&child, output, Some(self.deadline), |line| {
            take(line);
            Some(limit.left(line, Instant::now()))
        });
        if !matches!(ending, Ok(Ending::Ended)) {
            // One that has ended is as good.
            drop(child.kill());
        }
        let cpu = process_time::of_ended(&child);
        let status = child.wait().context("cannot wait for a test")?;
        let ended = match ending? {
            Ending::Silent(_) => {
                let limit = self.deadline.as_secs();
                Some(format!("ended after its limit of {limit} s"))
            }
            Ending::Ended if matches!(status.code(), Some(0 | FAILED)) => None,
            Ending::Ended => Some(format!("the process ended with {status}")),
        };
        Ok((ended, cpu))
    }

    fn command(
        &self,
        workspace: &Workspace,
        tests: &Tests<'_>,
        more: &[(String, OsString)],
        output: io::PipeWriter,
    ) -> anyhow::Result<Child> {
        let words = WITH_US
            .map(OsStr::new)
            .into_iter()
            .chain(self.wrapper.iter().map(OsString::as_os_str));
        let words: Vec<_> = words.chain([tests.program.path.as_os_str()]).collect();
        let mut command: Command = workspace.command(words[0]);
        command
            .args(&words[1..])
            .args(tests.arguments)
            .current_dir(&tests.program.dir);
        command.envs(
            self.variables
                .iter()
                .chain(more)
                .map(|(name, value)| (name, value)),
        );
        let errors = output.try_clone().context("cannot share a pipe")?;
        let child = command
            .stdout(output)
            .stderr(errors)
            .stdin(Stdio::null())
            .spawn();
        child.with_context(|| format!("cannot start {}", tests.program.path.display()))
    }
}

/// The command that lets a process end with the one that started it, however that ends.
const WITH_US: [&str; 4] = ["setpriv", "--pdeathsig", "KILL", "--"];

/// The exit status of a test program of which a test failed.
const FAILED: i32 = 101;

/// Tests of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tests<'a> {
    pub(super) program: &'a TestProgram,
    pub(super) arguments: &'a [String],
}

fn clear(dir: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// The ends of the files that a test left: logs and statuses.
fn left(dir: &Path) -> Vec<String> {
    let mut files: Vec<_> = dir
        .read_dir()
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|file| file.path())
        .collect();
    files.sort();
    let tail = |path: PathBuf| {
        let text = fs::read(&path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        let lines: Vec<String> = text.lines().map(|line| format!("    {line}")).collect();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let head = format!("  the end of {name}:");
        std::iter::once(head)
            .chain(lines[lines.len().saturating_sub(TAIL)..].to_vec())
            .collect::<Vec<_>>()
    };
    files.into_iter().flat_map(tail).collect()
}

/// The time that is left of a test. The next test of the same process has all of it again.
#[derive(Debug)]
struct TestLimit {
    limit: Duration,
    since: Instant,
}

impl TestLimit {
    const fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, since: now }
    }

    /// Takes a line of the process. The harness writes one that names each test.
    fn left(&mut self, line: &str, now: Instant) -> Duration {
        if line.starts_with("test ") && line.contains(" ... ") {
            self.since = now;
        }
        self.limit
            .saturating_sub(now.saturating_duration_since(self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings() -> Surroundings {
        let reports = std::env::temp_dir().join(format!("xtask-reports-{}", std::process::id()));
        Surroundings {
            variables: Vec::new(),
            wrapper: Vec::new(),
            reports,
            deadline: DEADLINE,
        }
    }

    fn shell() -> TestProgram {
        TestProgram {
            package: "p".to_owned(),
            name: "sh".to_owned(),
            kind: super::super::programs::Kind::Integration,
            path: "/bin/sh".into(),
            dir: "/".into(),
        }
    }

    fn run(script: &str) -> Ran {
        let workspace = Workspace::new().expect("the project");
        let (program, arguments) = (shell(), ["-c".to_owned(), script.to_owned()]);
        let tests = Tests {
            program: &program,
            arguments: &arguments,
        };
        surroundings()
            .one(&workspace, &format!("a::{}", script.len()), tests)
            .expect("a shell")
    }

    #[test]
    fn a_process_that_dies_without_a_result_has_failed() {
        let ran = run("echo begun; kill -9 $$");
        assert_eq!(ran.tally.to_string(), "0 passed, 1 failed");
        assert!(
            ran.tally.failures()[0].contains("signal: 9"),
            "{:?}",
            ran.tally
        );
    }

    #[test]
    fn what_a_failed_test_left_is_shown() {
        let ran = run(
            "mkdir -p $FLANNEL_TEST_REPORT && echo 'no lease' >$FLANNEL_TEST_REPORT/agent.log; \
             exit 101",
        );
        let shown = ran.shown.join("\n");
        assert!(
            shown.contains("the end of agent.log") && shown.contains("    no lease"),
            "{shown}"
        );
    }

    #[test]
    fn each_test_of_a_process_has_the_whole_limit() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let mut limit = TestLimit::new(10 * second, start);
        let mut left = |line, after: u32| limit.left(line, start + after * second);
        assert_eq!(left("running 2 tests", 1), 9 * second);
        assert_eq!(left("test a::b ... ok", 8), 10 * second);
        assert_eq!(left("test result of mine", 10), 8 * second);
        assert_eq!(
            left("test a::c   ... the first line of its output", 12),
            10 * second
        );
        assert_eq!(left("another line", 23), Duration::ZERO);
    }

    #[test]
    fn the_time_of_children_is_counted() {
        let ran = run("(i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done); exit 101");
        assert!(ran.cpu > Duration::from_millis(20), "{:?}", ran.cpu);
    }
}
