//! Cargo subcommands from the registry, each in one version, built from source with its own lock
//! file.
//!
//! They lie below the directory of tools, and their version is part of the path: another version is
//! another tool.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};

use super::{apt::remove_dir, log::run_logged};
use crate::workspace::Workspace;

/// A subcommand, such as `deny` of `cargo deny`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subcommand {
    crate_name: &'static str,
    version: &'static str,
    /// Its purpose, in messages.
    purpose: &'static str,
}

/// Writes a software bill of materials (SBOM).
pub(crate) const CYCLONEDX: Subcommand = Subcommand {
    crate_name: "cargo-cyclonedx",
    version: "0.5.9",
    purpose: "the software bill of materials",
};
/// Writes the crates of a program into it.
pub(crate) const AUDITABLE: Subcommand = Subcommand {
    crate_name: "cargo-auditable",
    version: "0.7.7",
    purpose: "the crates listed in the programs",
};
/// Checks licences, sources, duplicates and advisories.
pub(crate) const DENY: Subcommand = Subcommand {
    crate_name: "cargo-deny",
    version: "0.20.2",
    purpose: "the checks of deny.toml",
};

impl Subcommand {
    /// The directory with the program, whether it is there or not.
    pub(super) fn dir(&self, workspace: &Workspace) -> PathBuf {
        self.root(workspace).join("bin")
    }

    /// Builds it, unless it is there.
    pub(super) fn ensure(&self, workspace: &Workspace) -> anyhow::Result<()> {
        let program = self.dir(workspace).join(self.crate_name);
        if program.is_file() {
            return Ok(());
        }
        let Self {
            crate_name,
            version,
            purpose,
        } = self;
        println!("set-up: {crate_name} {version} for {purpose}; its build takes some minutes ...");
        let objects = self.root(workspace).join("build");
        let mut cargo = workspace.cargo();
        cargo
            .args([
                "install",
                crate_name,
                "--locked",
                "--force",
                "--version",
                version,
                "--root",
            ])
            .arg(self.root(workspace))
            .env("CARGO_TARGET_DIR", &objects);
        run_logged(workspace, &mut cargo)
            .with_context(|| format!("cannot build {crate_name} {version}"))?;
        remove_dir(&objects)?;
        ensure!(
            program.is_file(),
            "{crate_name} {version} was built and {} is not there",
            program.display()
        );
        Ok(())
    }

    fn root(&self, workspace: &Workspace) -> PathBuf {
        workspace
            .tools()
            .join(format!("{}-{}", self.crate_name, self.version))
    }
}
