//! The folder of a release: Debian packages, images and archives of the programs for each
//! architecture, the plugin of kubectl, the chart, the manifest, bills of materials, and the
//! digests of all with their signature.

mod c_library;
mod chart;
mod debian;
mod krew;
mod sbom;
mod signature;
mod tarball;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use self::krew::KrewArchive;
use crate::{
    build::{self, Built, Machine},
    cli::DistOptions,
    files, image,
    setup::{Setup, cross::Cross, subcommands},
    workspace::{self, Workspace},
};

const DIGESTS: &str = "SHA256SUMS";
const MANIFEST: &str = "deploy/kube-flannel.yml";

/// Makes the release. Returns its folder.
pub(crate) fn release(setup: &Setup<'_>, options: &DistOptions) -> anyhow::Result<PathBuf> {
    let workspace = setup.workspace();
    let toolchain = setup.bpf()?;
    let cyclonedx = setup.subcommand(subcommands::CYCLONEDX)?;
    let auditable = setup.subcommand(subcommands::AUDITABLE)?;
    let dist = empty(workspace)?;
    let build = |machine: Machine<'_>| {
        build::build_auditable(
            workspace,
            build::Bpf::release(&toolchain),
            &auditable,
            machine,
        )
    };
    let bills = sbom::make(workspace, &cyclonedx, &dist)?;
    let here = build(Machine::Here)?;
    let agent = here.program("flannel-agent");
    let mut archives = vec![parts(setup, &here, &bills, &agent, &dist)?];
    if !options.native && here.architecture() != Cross::ARCHITECTURE {
        let cross = Cross::ensure(setup).context(
            "the programs for arm64 cannot be made here (--native makes those of this \
                machine alone)",
        )?;
        archives.push(parts(
            setup,
            &build(Machine::Other(&cross))?,
            &bills,
            &agent,
            &dist,
        )?);
    }
    krew::manifest(workspace, &archives, options.url.as_deref(), &dist)?;
    chart::make(workspace, &dist)?;
    files::install(
        &workspace.root().join(MANIFEST),
        &dist.join("kube-flannel.yml"),
        0o644,
    )?;
    let digests = digests(workspace, &dist)?;
    if let Some(key) = &options.sign {
        println!(
            "dist: {}",
            signature::sign(workspace, key, &digests)?.display()
        );
    }
    Ok(dist)
}

/// Makes the parts of one architecture. Returns the archive of the plugin of kubectl.
fn parts(
    setup: &Setup<'_>,
    built: &Built,
    bills: &[PathBuf],
    agent: &Path,
    dist: &Path,
) -> anyhow::Result<KrewArchive> {
    let workspace = setup.workspace();
    c_library::check(&built.program("flannel-agent"))?;
    let krew = KrewArchive::make(workspace, built, dist)?;
    let mut files = debian::packages(workspace, built, bills, agent, dist)?;
    files.extend([
        tarball::programs(workspace, built, dist)?,
        image::make(setup, built)?,
        krew.file.clone(),
    ]);
    for file in files {
        let bytes = fs::metadata(&file)
            .with_context(|| format!("cannot read {}", file.display()))?
            .len();
        println!("dist: {} ({:.1} MB)", file.display(), megabytes(bytes));
    }
    Ok(krew)
}

fn empty(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let dist = workspace.target().join("dist");
    files::remove(&dist)?;
    fs::create_dir_all(&dist).with_context(|| format!("cannot create {}", dist.display()))?;
    Ok(dist)
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Writes what `sha256sum --check` reads; where it is.
fn digests(workspace: &Workspace, dist: &Path) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(dist).with_context(|| format!("cannot read {}", dist.display()))?;
    let mut names: Vec<_> = entries
        .map(|entry| Ok(entry?.file_name()))
        .collect::<anyhow::Result<_>>()?;
    names.sort();
    let mut sum = workspace.command("sha256sum");
    let text = workspace::output(sum.arg("--").args(&names).current_dir(dist))?;
    let file = dist.join(DIGESTS);
    files::write(&file, &text)?;
    Ok(file)
}
