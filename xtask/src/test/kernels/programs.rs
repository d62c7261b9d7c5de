//! The test programs: built as for `cargo test`, and found by what cargo says of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::set::{Feature, Work};
use crate::{
    build::{Built, Machine},
    workspace::{self, Workspace},
};

/// Packages with the test programs of the features.
const PACKAGES: [&str; 2] = ["flannel-tests", "flannel-agent"];

/// Paths of test programs and of the directories they run in, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Programs(BTreeMap<String, (PathBuf, PathBuf)>);

impl Programs {
    /// Builds those of the features, for this machine or for another; none if no feature has one.
    pub(super) fn build(
        workspace: &Workspace,
        built: &Built,
        machine: Machine<'_>,
        features: &[&Feature],
    ) -> anyhow::Result<Self> {
        let names = names(features);
        if names.is_empty() {
            // Without a name cargo would build the tests of every target.
            return Ok(Self::default());
        }
        println!("build: the test programs {}", names.iter().copied().collect::<Vec<_>>().join(", "));
        let mut cargo = workspace.cargo();
        cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics"]).args(workspace::locked());
        cargo.args(PACKAGES.map(|package| format!("--package={package}")));
        cargo.args(names.iter().map(|name| format!("--test={name}")));
        if let Machine::Other(cross) = machine {
            cross.apply(&mut cargo);
        }
        built.announce(&mut cargo);
        let output = cargo.stderr(Stdio::inherit()).output().context("cannot build the test programs")?;
        ensure!(
            output.status.success(),
            "the test programs' build failed ({}); its own messages are above",
            output.status
        );
        let programs = Self::parse(&String::from_utf8_lossy(&output.stdout));
        for name in names {
            ensure!(programs.0.contains_key(name), "cargo built no test program {name}");
        }
        Ok(programs)
    }

    /// The programs in cargo's messages, of which each is a line.
    fn parse(messages: &str) -> Self {
        Self(messages.lines().filter_map(|line| test_program(&serde_json::from_str(line).ok()?)).collect())
    }

    /// A program, and the directory it runs in.
    pub(super) fn of(&self, name: &str) -> (&Path, &Path) {
        let (program, dir) = &self.0[name];
        (program, dir)
    }

    #[cfg(test)]
    pub(super) fn of_one(name: &str, program: &str, dir: &str) -> Self {
        Self(BTreeMap::from([(name.to_owned(), (program.into(), dir.into()))]))
    }
}

/// The names of the features' programs, each once.
fn names(features: &[&Feature]) -> BTreeSet<&'static str> {
    let program = |feature: &&Feature| match feature.work {
        Work::Check => None,
        Work::Tests(program, _) => Some(program),
    };
    features.iter().filter_map(program).collect()
}

fn test_program(message: &Value) -> Option<(String, (PathBuf, PathBuf))> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let dir = Path::new(message["manifest_path"].as_str()?).parent()?;
    Some((message["target"]["name"].as_str()?.to_owned(), (message["executable"].as_str()?.into(), dir.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::{super::set, *};

    #[test]
    fn check_takes_no_test_program_and_rows_of_one_program_share_it() {
        let names = |part: &str| names(&set::rows(&[part.into()]).expect("rows"));
        assert!(names("mode that `check` offers").is_empty());
        assert_eq!(names("programs: "), BTreeSet::from(["programs"]));
        assert_eq!(names("mode `fast`"), BTreeSet::from(["e2e"]));
    }

    #[test]
    fn test_programs_are_those_with_an_executable_and_the_test_profile() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/p/tests/Cargo.toml","target":{"name":"e2e"},"profile":{"test":true},"executable":"/t/e2e-1"}
{"reason":"compiler-artifact","manifest_path":"/p/tests/Cargo.toml","target":{"name":"demo"},"profile":{"test":false},"executable":"/t/demo"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(Programs::parse(messages), Programs::of_one("e2e", "/t/e2e-1", "/p/tests"));
    }
}
