//! The folder of a release: Debian packages, images and archives of the programs for each
//! architecture, the chart, the manifest, bills of materials, and the digests of all.

mod c_library;
mod debian;
mod sbom;
mod tarball;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::{
    build::{self, Built, Machine},
    files, image,
    setup::{Setup, cross::Cross, subcommands},
    workspace::{self, Workspace},
};

const DIGESTS: &str = "SHA256SUMS";
const MANIFEST: &str = "deploy/kube-flannel.yml";

/// Makes the release, only for this machine's architecture if `native`. Returns its folder.
pub(crate) fn release(setup: &Setup<'_>, native: bool) -> anyhow::Result<PathBuf> {
    let workspace = setup.workspace();
    let toolchain = setup.bpf()?;
    let cyclonedx = setup.subcommand(subcommands::CYCLONEDX)?;
    let auditable = setup.subcommand(subcommands::AUDITABLE)?;
    let dist = empty(workspace)?;
    let build =
        |machine: Machine<'_>| build::build_auditable(workspace, build::Bpf::release(&toolchain), &auditable, machine);
    let bills = sbom::make(workspace, &cyclonedx, &dist)?;
    let here = build(Machine::Here)?;
    let agent = here.program("flannel-agent");
    parts(setup, &here, &bills, &agent, &dist)?;
    if !native && here.architecture() != Cross::ARCHITECTURE {
        let cross = Cross::ensure(setup)
            .context("the programs for arm64 cannot be made here (--native makes those of this machine alone)")?;
        parts(setup, &build(Machine::Other(&cross))?, &bills, &agent, &dist)?;
    }
    tarball::chart(workspace, &dist)?;
    files::install(&workspace.root().join(MANIFEST), &dist.join("kube-flannel.yml"), 0o644)?;
    digests(workspace, &dist)?;
    Ok(dist)
}

/// The parts of one architecture.
fn parts(setup: &Setup<'_>, built: &Built, bills: &[PathBuf], agent: &Path, dist: &Path) -> anyhow::Result<()> {
    let workspace = setup.workspace();
    c_library::check(&built.program("flannel-agent"))?;
    for file in [
        debian::package(workspace, built, bills, agent, dist)?,
        tarball::programs(workspace, built, dist)?,
        image::make(setup, built)?,
    ] {
        println!("dist: {}", file.display());
    }
    Ok(())
}

fn empty(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let dist = workspace.target().join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist).with_context(|| format!("cannot clear {}", dist.display()))?;
    }
    fs::create_dir_all(&dist).with_context(|| format!("cannot create {}", dist.display()))?;
    Ok(dist)
}

/// Writes what `sha256sum --check` reads.
fn digests(workspace: &Workspace, dist: &Path) -> anyhow::Result<()> {
    let entries = fs::read_dir(dist).with_context(|| format!("cannot read {}", dist.display()))?;
    let mut names: Vec<_> = entries.map(|entry| Ok(entry?.file_name())).collect::<anyhow::Result<_>>()?;
    names.sort();
    let mut sum = workspace.command("sha256sum");
    let text = workspace::output(sum.arg("--").args(&names).current_dir(dist))?;
    files::write(&dist.join(DIGESTS), &text)
}
