//! The pieces of a test run that are started on their own: a program of unit tests, one end-to-end
//! test, or a task such as the boot of another kernel.

use std::{path::Path, process::Command};

use anyhow::Context as _;

use super::{
    load::Load,
    programs::{Kind, TestProgram},
    tally::Tally,
    weights,
};

/// The target with the end-to-end suite: each of its tests has a process.
pub(super) const END_TO_END: &str = "e2e";
/// The target with the tests of a Kubernetes cluster, which they share.
pub(super) const CLUSTER: &str = "kubernetes_cluster";
/// The subject of those tests.
pub(super) const KUBERNETES: &str = "kubernetes";

/// A thing that a job needs in addition to its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// No other thing.
    Nothing,
    /// The packages of the lab.
    Lab,
    /// The agent and what it is run with.
    Agent,
    /// The container image, or the reason that there is none.
    Image,
}

/// A task of this program's process.
pub(super) type Task<'a> = Box<dyn FnOnce() -> anyhow::Result<Tally> + Send + 'a>;

/// The work of a job.
pub(super) enum JobWork<'a> {
    /// Some tests of a program, and the arguments that choose them.
    Tests {
        program: TestProgram,
        arguments: Vec<String>,
    },
    /// Anything else.
    Task(Task<'a>),
}

/// A piece of a test run.
pub(super) struct Job<'a> {
    /// Its name, such as `tunnel::restart::NAME` or `flannel-store: unit tests`.
    pub(super) name: String,
    pub(super) load: Load,
    pub(super) need: Need,
    /// The seconds it took when it was measured, roughly: the longest start first.
    pub(super) seconds: u32,
    /// It is shown line by line while it runs.
    pub(super) is_shown: bool,
    /// It runs on the host of a profile, if there is one.
    pub(super) is_on_host: bool,
    pub(super) work: JobWork<'a>,
}

impl<'a> Job<'a> {
    /// A task.
    pub(super) fn task(name: &str, load: Load, need: Need, task: Task<'a>) -> Self {
        let seconds = weights::of(name).1;
        Self {
            name: name.to_owned(),
            load,
            need,
            seconds,
            is_shown: false,
            is_on_host: false,
            work: JobWork::Task(task),
        }
    }

    /// The jobs of a program that was built: those of its tests that the filter chooses.
    ///
    /// # Errors
    /// The program does not list its tests.
    pub(super) fn of_program(program: &TestProgram, filter: &Filter) -> anyhow::Result<Vec<Self>> {
        let names = list(program, filter)?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        if program.name == END_TO_END && program.kind == Kind::Integration {
            let (title, starts) = weights::SHARED;
            let is_shared = |name: &String| starts.iter().any(|start| name.starts_with(start));
            let (shared, own): (Vec<_>, Vec<_>) = names.into_iter().partition(is_shared);
            let own = own
                .into_iter()
                .flat_map(|name| Self::of_test(program, name, filter.host));
            let shared = (!shared.is_empty()).then(|| Self::of_tests(program, title, shared));
            return Ok(shared.into_iter().chain(own).collect());
        }
        let name = program.title();
        let (load, seconds) = if program.kind == Kind::Unit {
            (Load::Computes, 10)
        } else {
            weights::of(&name)
        };
        let is_cluster = program.name == CLUSTER;
        let mut arguments = vec!["--show-output".to_owned()];
        arguments.extend(filter.arguments.iter().cloned());
        Ok(vec![Self {
            load,
            need: match program.kind {
                Kind::Unit => Need::Nothing,
                Kind::Integration if is_cluster => Need::Image,
                Kind::Integration => Need::Lab,
            },
            seconds,
            is_shown: is_cluster,
            is_on_host: false,
            name,
            work: JobWork::Tests {
                program: program.clone(),
                arguments,
            },
        }])
    }

    /// The job of end-to-end tests that share a process.
    fn of_tests(program: &TestProgram, title: &str, names: Vec<String>) -> Self {
        let (load, seconds) = weights::of(title);
        let arguments = ["--show-output", "--exact"]
            .map(str::to_owned)
            .into_iter()
            .chain(names)
            .collect();
        Self {
            name: title.to_owned(),
            load,
            need: Need::Agent,
            seconds,
            is_shown: false,
            is_on_host: false,
            work: JobWork::Tests {
                program: program.clone(),
                arguments,
            },
        }
    }

    /// The job of an end-to-end test; two where a few tests run on the host of a profile as well.
    fn of_test(program: &TestProgram, name: String, host: HostUse) -> Vec<Self> {
        let (load, seconds) = weights::of(&name);
        let need = if name.starts_with("deploy::image::") {
            Need::Image
        } else {
            Need::Agent
        };
        // Captured output would be lost with a test that is ended at its deadline.
        let arguments = vec!["--exact".to_owned(), name.clone(), "--nocapture".to_owned()];
        let job = |name: String, is_on_host| Self {
            name,
            load,
            need,
            seconds,
            is_shown: false,
            is_on_host,
            work: JobWork::Tests {
                program: program.clone(),
                arguments: arguments.clone(),
            },
        };
        let second = host == HostUse::Some && weights::runs_on_crowded_host(&name);
        let second = second.then(|| job(format!("{name} (on a crowded host)"), true));
        [job(name, host == HostUse::All)]
            .into_iter()
            .chain(second)
            .collect()
    }
}

/// The end-to-end tests that run on the host of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum HostUse {
    /// No test: a profile was not chosen.
    #[default]
    No,
    /// A few run there as well.
    Some,
    /// All of them.
    All,
}

/// The tests that a command line chooses.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    /// Arguments of the test harness, for example part of a test's name.
    pub(super) arguments: Vec<String>,
    /// The subjects of the end-to-end suite; all if it is empty.
    pub(super) subjects: Vec<String>,
    /// Parts of names of the end-to-end suite, of which a test has one; all if it is empty.
    pub(super) parts: Vec<String>,
    pub(super) host: HostUse,
    /// Without the tests of [`weights::FOR_ALL`].
    pub(super) is_plain: bool,
}

impl Filter {
    fn takes(&self, name: &str) -> bool {
        if self.is_plain && weights::is_for_all(name) {
            return false;
        }
        let subject = name.split("::").next().unwrap_or_default();
        let is_chosen = self.subjects.iter().any(|chosen| chosen == subject)
            || self.parts.iter().any(|part| name.contains(part.as_str()));
        is_chosen || (self.subjects.is_empty() && self.parts.is_empty())
    }
}

/// The names of a program's tests.
fn list(program: &TestProgram, filter: &Filter) -> anyhow::Result<Vec<String>> {
    let mut command = Command::new(&program.path);
    command
        .args(["--list", "--format=terse"])
        .args(&filter.arguments)
        .current_dir(&program.dir);
    let output = command
        .output()
        .with_context(|| format!("cannot start {}", program.path.display()))?;
    anyhow::ensure!(
        output.status.success(),
        "{} --list ended with {}",
        program.path.display(),
        output.status
    );
    let names = read_list(&String::from_utf8_lossy(&output.stdout));
    if program.name != END_TO_END {
        return Ok(names);
    }
    if filter.is_plain {
        weights::check_for_all(&names)?;
        let left = names.iter().filter(|name| weights::is_for_all(name));
        println!("test: {} end-to-end tests are left to --all", left.count());
    }
    Ok(names
        .into_iter()
        .filter(|name| filter.takes(name))
        .collect())
}

fn read_list(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect()
}

/// The folders of the end-to-end suite, which are its subjects.
pub(super) fn subjects(root: &Path) -> anyhow::Result<Vec<String>> {
    let folder = root.join("tests/tests");
    let entries = folder
        .read_dir()
        .with_context(|| format!("cannot read {}", folder.display()))?;
    let folders = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir());
    let mut names: Vec<_> = folders
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_a_list() {
        let text = "tunnel::restart::a: test\nlab::b: test\nbench::c: benchmark\n";
        assert_eq!(read_list(text), ["tunnel::restart::a", "lab::b"]);
    }

    #[test]
    fn a_subject_is_the_first_part_of_a_name() {
        let filter = Filter {
            subjects: vec!["lab".to_owned()],
            ..Filter::default()
        };
        assert!(
            filter.takes("lab::a") && !filter.takes("labour::a") && !filter.takes("tunnel::lab")
        );
        assert!(Filter::default().takes("tunnel::lab"));
        let part = Filter {
            parts: vec!["restart".to_owned()],
            ..Filter::default()
        };
        assert!(part.takes("tunnel::restart::a") && !part.takes("tunnel::a"));
    }

    #[test]
    fn a_plain_run_leaves_long_tests_out() {
        let long = format!("{}a", weights::FOR_ALL[0]);
        let plain = Filter {
            is_plain: true,
            ..Filter::default()
        };
        assert!(!plain.takes(&long) && plain.takes("tunnel::a"));
        assert!(Filter::default().takes(&long));
    }
}
