//! The test programs: built as for `cargo test`, and found by what cargo says of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::ensure;

use super::super::programs::TestProgram;
use super::set::{Feature, Work};
use crate::{
    build::{self, Built, Machine},
    cargo,
    workspace::Workspace,
};

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
        let mut cargo = build::dev_build(workspace, built, &["build"]);
        cargo.arg("--message-format=json-render-diagnostics");
        cargo.args(names.iter().map(|name| format!("--test={name}")));
        if let Machine::Other(cross) = machine {
            cross.apply(&mut cargo);
        }
        let mut programs = Self::default();
        cargo::compile(
            &mut cargo,
            "the test programs of other kernels",
            |message| {
                programs.0.extend(
                    TestProgram::read(message)
                        .map(|program| (program.name, (program.path, program.dir))),
                );
            },
        )?;
        for name in names {
            ensure!(
                programs.0.contains_key(name),
                "cargo built no test program {name}"
            );
        }
        Ok(programs)
    }

    /// A program, and the directory it runs in.
    pub(super) fn of(&self, name: &str) -> (&Path, &Path) {
        let (program, dir) = &self.0[name];
        (program, dir)
    }

    #[cfg(test)]
    pub(super) fn of_one(name: &str, program: &str, dir: &str) -> Self {
        Self(BTreeMap::from([(
            name.to_owned(),
            (program.into(), dir.into()),
        )]))
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
}
