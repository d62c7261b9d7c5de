//! Set-up: installs what a verb needs on this machine, or names it exactly.
//!
//! Every answer comes from the real file, command or version, never from a stamp, and the check
//! takes a fraction of a second on a complete machine. As root on Debian or Ubuntu what is missing
//! is installed; elsewhere the error lists it and says what to run. A toolchain the user has is
//! never replaced: the BPF one lives below `target/`.

mod apt;
mod checkers;
mod components;
pub(crate) mod cross;
mod linker;
mod log;
mod packages;
mod promtool;
mod release;
mod steps;
pub(crate) mod subcommands;
pub(crate) mod toolchain;
mod unpacked;

pub(crate) use self::{packages::Needs, release::Release, steps::Steps};

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::bail;

use self::{
    apt::Apt,
    packages::{Package, Source},
    subcommands::Subcommand,
    toolchain::Toolchain,
    unpacked::Unpacked,
};
use crate::workspace::Workspace;

/// Set-up of one workspace on this machine.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    workspace: &'a Workspace,
    apt: Apt<'a>,
    skip: bool,
}

impl<'a> Setup<'a> {
    /// Returns a set-up that has not looked at the machine yet. With `skip` it never installs.
    pub(crate) fn new(workspace: &'a Workspace, skip: bool) -> Self {
        Self {
            workspace,
            apt: Apt::new(workspace),
            skip,
        }
    }

    /// The same for another view of the workspace.
    pub(crate) fn with<'b>(&self, workspace: &'b Workspace) -> Setup<'b> {
        Setup::new(workspace, self.skip)
    }

    /// The workspace this set-up is for.
    pub(crate) fn workspace(&self) -> &'a Workspace {
        self.workspace
    }

    /// Sees to the packages of the given groups.
    pub(crate) fn machine(&self, needs: Needs) -> anyhow::Result<()> {
        let missing: Vec<&Package> = if self.skip {
            Vec::new()
        } else {
            packages::missing(self.workspace, needs)
        };
        if missing.is_empty() {
            return Ok(());
        }
        if let Some(obstacle) = self.apt.obstacle_to_install() {
            bail!("{}", packages::explain(&missing, obstacle));
        }
        let (install, unpack): (Vec<&Package>, Vec<&Package>) = missing
            .into_iter()
            .partition(|package| package.source == Source::Install);
        let mut steps = Steps::new("set-up", usize::from(!install.is_empty()) + unpack.len());
        if !install.is_empty() {
            let names: Vec<&str> = install.iter().map(|package| package.name).collect();
            for package in &install {
                println!("set-up: {package}");
            }
            steps.run(&format!("apt-get install {}", names.join(" ")), || {
                self.apt.install(&names)
            })?;
        }
        for package in unpack {
            println!("set-up: {package}");
            steps.run(
                &format!(
                    "unpack {} into {}",
                    package.name,
                    self.workspace.tools().display()
                ),
                || self.apt.unpack(&[package.name], &self.workspace.tools()),
            )?;
        }
        packages::verify(self.workspace, needs)
    }

    /// Finds a toolchain for the BPF programs, or makes one.
    pub(crate) fn bpf(&self) -> anyhow::Result<Toolchain> {
        let unpacked = match Unpacked::find(self.workspace) {
            Ok(found) => return Ok(Toolchain::Unpacked(found)),
            Err(missing) => missing,
        };
        if toolchain::nightly_is_usable(self.workspace) {
            return Ok(Toolchain::Nightly);
        }
        let obstacle = if self.skip {
            Some("--skip-setup was given")
        } else {
            self.apt.obstacle_to_install()
        };
        if let Some(obstacle) = obstacle {
            bail!("{}", toolchain::explain(&unpacked, obstacle));
        }
        println!(
            "set-up: a BPF toolchain below {} ({unpacked})",
            unpacked::dir(self.workspace).display()
        );
        Ok(Toolchain::Unpacked(unpacked::make(
            self.workspace,
            &self.apt,
        )?))
    }

    /// Sees to what checks `deploy/` and the metrics, if it can be had; their tests say so if not.
    pub(crate) fn checkers(&self) {
        if self.skip {
            return;
        }
        let results = [
            ("deploy/ and cloud routes", checkers::ensure(self.workspace)),
            ("metrics", promtool::ensure(self.workspace, &self.apt)),
        ];
        for (tests, result) in results {
            if let Err(error) = result {
                println!("set-up: the tests of {tests} go without, because {error:#}");
            }
        }
    }

    /// Sees to a cargo subcommand; the directory it is in.
    pub(crate) fn subcommand(&self, subcommand: Subcommand) -> anyhow::Result<PathBuf> {
        if !self.skip {
            subcommand.ensure(self.workspace)?;
        }
        Ok(subcommand.dir(self.workspace))
    }

    /// Fetches packages and all that they depend on, as on a machine without any; their files.
    pub(crate) fn closure(&self, names: &[&str], into: &Path) -> anyhow::Result<Vec<PathBuf>> {
        if let Some(obstacle) = self.apt.obstacle_to_install() {
            bail!("packages cannot be fetched because {obstacle}");
        }
        self.apt.closure(names, into)
    }

    /// Fetches packages, without what they depend on, into a directory; their files.
    pub(crate) fn fetch(&self, names: &[&str], into: &Path) -> anyhow::Result<Vec<PathBuf>> {
        self.apt.fetch(names, into)?;
        names
            .iter()
            .map(|name| apt::package_file(into, name))
            .collect()
    }

    /// Fetches packages, without what they depend on, and unpacks them into a directory.
    pub(crate) fn unpack(&self, names: &[&str], into: &Path) -> anyhow::Result<()> {
        self.apt.unpack(names, into)
    }

    /// Fetches packages of another architecture into a directory; their files.
    pub(crate) fn foreign(
        &self,
        architecture: &str,
        names: &[&str],
        into: &Path,
    ) -> anyhow::Result<Vec<PathBuf>> {
        self.apt.foreign(architecture, names, into)
    }

    /// The same with all that they depend on.
    pub(crate) fn foreign_closure(
        &self,
        architecture: &str,
        names: &[&str],
        into: &Path,
    ) -> anyhow::Result<Vec<PathBuf>> {
        self.apt.foreign_closure(architecture, names, into)
    }

    /// Fetches those packages of an installation of `names` that `wanted` accepts, in the version
    /// of another release of Debian; their files.
    pub(crate) fn of_release(
        &self,
        release: &Release<'_>,
        names: &[&str],
        wanted: impl Fn(&str) -> bool,
        into: &Path,
    ) -> anyhow::Result<Vec<PathBuf>> {
        self.apt.of_release(release, names, wanted, into)
    }

    /// Unpacks one package file into a directory.
    pub(crate) fn extract(&self, package: &Path, into: &Path) -> anyhow::Result<()> {
        self.apt.extract(package, into)
    }

    /// Fetches a source package into a directory; its description.
    pub(crate) fn source(&self, name: &str, into: &Path) -> anyhow::Result<PathBuf> {
        self.apt.source(name, into)
    }

    /// The log of set-up.
    pub(crate) fn log(&self) -> anyhow::Result<PathBuf> {
        log::path(self.workspace)
    }

    /// Runs a command whose output goes to the log of set-up.
    pub(crate) fn run_logged(&self, command: &mut Command) -> anyhow::Result<()> {
        log::run_logged(self.workspace, command)
    }

    /// The same, and passes each line of its standard error to `observe` as it comes.
    pub(crate) fn run_observed(
        &self,
        command: &mut Command,
        observe: impl FnMut(&str),
    ) -> anyhow::Result<()> {
        log::run_observed(self.workspace, command, observe)
    }

    /// Sees to the components of the user's own toolchain that `lint` calls.
    pub(crate) fn lint_components(&self) -> anyhow::Result<()> {
        if self.skip {
            Ok(())
        } else {
            components::ensure(self.workspace)
        }
    }
}
