//! Test programs, as cargo names them while it builds.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The kind of a test program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The unit tests of a library or of a program.
    Unit,
    /// A program of a crate's folder `tests`.
    Integration,
}

/// A test program that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TestProgram {
    /// The crate, such as `flannel-store`.
    pub(super) package: String,
    /// The target, such as `etcd`; of unit tests the library or the program.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The executable.
    pub(super) path: PathBuf,
    /// The directory it runs in.
    pub(super) dir: PathBuf,
}

impl TestProgram {
    /// Reads one of cargo's messages (`--message-format=json`); `None` if it names no test program.
    pub(super) fn read(message: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(message).ok()?;
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let target = &message["target"];
        let is_integration = target["kind"].as_array()?.iter().any(|kind| kind == "test");
        Some(Self {
            package: package(message["package_id"].as_str()?)?.to_owned(),
            name: target["name"].as_str()?.to_owned(),
            kind: if is_integration {
                Kind::Integration
            } else {
                Kind::Unit
            },
            path: message["executable"].as_str()?.into(),
            dir: Path::new(message["manifest_path"].as_str()?)
                .parent()?
                .to_owned(),
        })
    }

    /// The name that people see, such as `flannel-store: etcd` or `flannel-store: unit tests`.
    pub(super) fn title(&self) -> String {
        match self.kind {
            Kind::Unit if self.name.replace('_', "-") == self.package => {
                format!("{}: unit tests", self.package)
            }
            Kind::Unit => format!("{}: unit tests of {}", self.package, self.name),
            Kind::Integration => format!("{}: {}", self.package, self.name),
        }
    }
}

/// The crate's name in a package id: behind `#`, or the last folder where only a version is there.
fn package(id: &str) -> Option<&str> {
    let (path, fragment) = id.rsplit_once('#')?;
    fragment
        .split_once('@')
        .map_or_else(|| path.rsplit('/').next(), |(name, _)| Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_has_an_executable_and_the_test_profile() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///p/tests#flannel-tests@0.1.0","manifest_path":"/p/tests/Cargo.toml","target":{"kind":["test"],"name":"e2e"},"profile":{"test":true},"executable":"/t/e2e-1"}"#;
        let program = TestProgram::read(line).expect("a program");
        assert_eq!(
            (program.title().as_str(), program.kind),
            ("flannel-tests: e2e", Kind::Integration)
        );
        assert_eq!(program.dir, Path::new("/p/tests"));
        assert_eq!(TestProgram::read(&line.replace("true", "false")), None);
        assert_eq!(
            TestProgram::read(r#"{"reason":"build-finished","success":true}"#),
            None
        );
    }

    #[test]
    fn unit_tests_are_named_after_their_crate() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///p/flannel-store#0.1.0","manifest_path":"/p/flannel-store/Cargo.toml","target":{"kind":["lib"],"name":"flannel_store"},"profile":{"test":true},"executable":"/t/s-1"}"#;
        assert_eq!(
            TestProgram::read(line).expect("a program").title(),
            "flannel-store: unit tests"
        );
        let demo = line
            .replace("flannel_store", "demo")
            .replace("\"lib\"", "\"bin\"");
        assert_eq!(
            TestProgram::read(&demo).expect("a program").title(),
            "flannel-store: unit tests of demo"
        );
    }
}
