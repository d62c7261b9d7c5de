//! `fuzz`: the fuzz targets of all crates, with counters of coverage, for as long as wanted.
//!
//! A target is a unit test `fuzz_NAME` that calls `flannel_fuzz::run`. The counters come from a
//! pass of LLVM that a stable rustc has, too (`-Cpasses=sancov-module`). The programs have their
//! own target directory, because the flags are those of all crates. Each target has its own
//! process, since counters are those of a process; one runs for each CPU.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::Mutex,
    thread,
};

use anyhow::{Context as _, bail};

use crate::{
    build, cargo,
    cli::FuzzOptions,
    lint::sources::rust_files,
    setup::{Needs, Setup},
    workspace::{self, Workspace},
};

/// The crates with targets, and the choice of their unit tests.
const CRATES: [(&str, &[&str]); 7] = [
    ("flannel-cloud", &["--lib"]),
    ("flannel-netlink", &["--lib"]),
    ("flannel-firewall", &["--lib"]),
    ("flannel-store", &["--lib"]),
    ("flannel-udp", &["--lib"]),
    ("flannel-cni", &["--bin", "flannel"]),
    ("flannel-status", &["--lib"]),
];
/// Counters of one byte for each edge: <https://clang.llvm.org/docs/SanitizerCoverage.html>.
const FLAGS: [&str; 3] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=3",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
];
/// The call by which a target is found in the sources.
const CALL: &str = "flannel_fuzz::run(";
/// The beginning of the name of its test.
const PREFIX: &str = "fuzz_";

/// Names of targets, with their crates.
type Targets = BTreeMap<String, String>;

/// Runs the chosen targets.
pub(crate) fn run(setup: &Setup<'_>, options: &FuzzOptions) -> anyhow::Result<ExitCode> {
    let workspace = setup.workspace();
    let targets = chosen(&targets(workspace.root())?, &options.targets)?;
    if options.list {
        for (name, package) in &targets {
            println!("{name} ({package})");
        }
        return Ok(ExitCode::SUCCESS);
    }
    setup.machine(Needs::COMPILE)?;
    let fuzzer = Fuzzer {
        workspace,
        host: build::host_triple(workspace)?,
        options,
    };
    let packages: BTreeSet<&str> = targets.values().map(String::as_str).collect();
    for package in packages {
        let mut cargo = fuzzer.cargo(package)?;
        cargo::compile(
            cargo.arg("--no-run"),
            &format!("the targets of {package}"),
            |_| (),
        )?;
    }
    let failed = fuzzer.run_all(&targets)?;
    println!(
        "fuzz: {} targets, {} failed{}",
        targets.len(),
        failed.len(),
        in_brackets(&failed)
    );
    Ok(if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn in_brackets(names: &[String]) -> String {
    if names.is_empty() {
        String::new()
    } else {
        format!(" ({})", names.join(", "))
    }
}

/// The run of the chosen targets.
struct Fuzzer<'a> {
    workspace: &'a Workspace,
    host: String,
    options: &'a FuzzOptions,
}

impl Fuzzer<'_> {
    /// The unit tests of a crate, with counters unless an input is repeated.
    fn cargo(&self, package: &str) -> anyhow::Result<Command> {
        let (_, kind) = CRATES
            .iter()
            .find(|(name, _)| *name == package)
            .context("a crate with targets")?;
        let mut cargo = self.workspace.cargo();
        cargo
            .arg("test")
            .args(["--package", package])
            .args(*kind)
            .args(workspace::locked());
        if self.options.input.is_none() {
            cargo
                .args(["--profile=fuzz", "--target", &self.host])
                .arg("--target-dir")
                .arg(self.directory());
            cargo.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
        }
        Ok(cargo)
    }

    /// The target directory of programs with counters.
    fn directory(&self) -> PathBuf {
        self.workspace.target().join("fuzz")
    }

    /// Runs a target on each CPU. Returns the names of those that failed.
    fn run_all(&self, targets: &Targets) -> anyhow::Result<Vec<String>> {
        let (waiting, failed) = (Mutex::new(targets.iter()), Mutex::new(Vec::new()));
        let work = || -> anyhow::Result<()> {
            loop {
                let next = waiting
                    .lock()
                    .ok()
                    .context("another thread panicked")?
                    .next();
                let Some((name, package)) = next else {
                    return Ok(());
                };
                if !self.run_one(name, package)? {
                    failed
                        .lock()
                        .ok()
                        .context("another thread panicked")?
                        .push(name.clone());
                }
            }
        };
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().ok().context("a thread panicked")?)
        })?;
        Ok(failed.into_inner().unwrap_or_default())
    }

    /// Runs a target. Returns false if an input failed.
    fn run_one(&self, name: &str, package: &str) -> anyhow::Result<bool> {
        let mut cargo = self.cargo(package)?;
        cargo
            .args(["--quiet", "--", "--nocapture"])
            .arg(format!("{PREFIX}{name}"));
        cargo.env(
            "FLANNEL_FUZZ_SECONDS",
            self.options.time.as_secs().to_string(),
        );
        cargo.env("FLANNEL_FUZZ_DIR", self.directory().join("corpora"));
        if let Some(input) = &self.options.input {
            let path = fs::canonicalize(input)
                .with_context(|| format!("no input at {}", input.display()))?;
            cargo.env("FLANNEL_FUZZ_INPUT", path);
        }
        Ok(cargo
            .status()
            .with_context(|| format!("cannot start the target {name}"))?
            .success())
    }
}

/// The targets in the sources, with their crates.
fn targets(root: &Path) -> anyhow::Result<Targets> {
    let mut found = Targets::new();
    for (package, _) in CRATES {
        for (_, text) in rust_files(&workspace::package_dir(root, package).join("src"))? {
            let calls = text
                .split(CALL)
                .skip(1)
                .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
            found.extend(calls.map(|name| (name.to_owned(), package.to_owned())));
        }
    }
    Ok(found)
}

fn chosen(all: &Targets, names: &[String]) -> anyhow::Result<Targets> {
    let known = || {
        all.keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    if let Some(other) = names.iter().find(|name| !all.contains_key(*name)) {
        bail!("there is no fuzz target {other}; there are {}", known());
    }
    let is_chosen = |name: &String| names.is_empty() || names.contains(name);
    Ok(all
        .iter()
        .filter(|(name, _)| is_chosen(name))
        .map(|(name, package)| (name.clone(), package.clone()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_a_test_of_its_name() {
        let workspace = Workspace::new().expect("the project");
        let targets = targets(workspace.root()).expect("the sources");
        assert!(targets.len() > 10, "{targets:?}");
        for (name, package) in &targets {
            let sources =
                rust_files(&workspace::package_dir(workspace.root(), package).join("src"))
                    .expect("the sources");
            let test = format!("fn {PREFIX}{name}(");
            assert!(
                sources.iter().any(|(_, text)| text.contains(&test)),
                "{package} has no {test}"
            );
        }
        assert!(chosen(&targets, &["no_such".to_owned()]).is_err());
        assert_eq!(
            chosen(&targets, &["net_conf".to_owned()])
                .expect("a target")
                .len(),
            1
        );
    }
}
