//! `lint`: every check, also when one before it failed, and a summary.

mod changes;
mod code_names;
mod dependencies;
mod glossary;
mod language;
mod layers;
mod size;
pub(crate) mod sources;
mod types;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, bail};

use crate::{
    setup::{Needs, Setup, toolchain::Toolchain},
    workspace::{self, BPF_TARGET, Workspace, package_dirs},
};

/// The check that compiles nothing.
const FORMAT: &str = "format";

/// A named command whose failure is a finding.
struct Check {
    name: &'static str,
    command: Command,
}

impl Check {
    fn new(name: &'static str, mut command: Command, args: &[&str]) -> Self {
        command.args(args);
        Self { name, command }
    }
}

/// Runs all checks, without the BPF crate's when `no_bpf` is set, and without those that compile
/// the host's crates when `no_clippy` is.
pub(crate) fn run(setup: &Setup<'_>, no_bpf: bool, no_clippy: bool) -> anyhow::Result<ExitCode> {
    setup.machine(Needs::COMPILE)?;
    setup.lint_components()?;
    // The checks of a second come before those that compile.
    let mut results: Vec<_> = SOURCE_CHECKS
        .iter()
        .map(|check| check_sources(setup.workspace(), *check))
        .collect();
    let mut checks = host_checks(setup.workspace());
    if no_clippy {
        checks.retain(|check| check.name == FORMAT);
    }
    if !no_bpf {
        checks.extend(bpf_checks(setup.workspace(), &setup.bpf()?));
    }
    for mut check in checks {
        println!("lint: {}", check.name);
        results.push((check.name, workspace::run(&mut check.command, check.name)));
    }
    println!();
    for (name, result) in &results {
        println!(
            "lint: {name}: {}",
            if result.is_ok() { "ok" } else { "FAILED" }
        );
    }
    let clean = results.iter().all(|(_, result)| result.is_ok());
    Ok(if clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn check_sources(
    workspace: &Workspace,
    (name, check): (&'static str, SourceCheck),
) -> (&'static str, anyhow::Result<()>) {
    println!("lint: {name}");
    let result = check(workspace.root());
    if let Err(error) = &result {
        println!("{error:#}");
    }
    (name, result)
}

fn host_checks(workspace: &Workspace) -> Vec<Check> {
    let clippy = |targets: &str| {
        let mut clippy = workspace.cargo();
        clippy
            .args(["clippy", "--workspace", "--exclude=flannel-ebpf", targets])
            .args(workspace::locked());
        clippy
    };
    let mut doc = workspace.cargo();
    doc.args(["doc", "--workspace", "--exclude=flannel-ebpf"])
        .args(workspace::locked())
        .env("RUSTDOCFLAGS", "-Dwarnings");
    vec![
        Check::new(FORMAT, workspace.cargo(), &["fmt", "--all", "--check"]),
        Check::new("clippy", clippy("--all-targets"), &["--", "-Dwarnings"]),
        // The manifests keep these out of a bare `cargo test`, and so out of all targets.
        Check::new(
            "clippy for tests as root",
            clippy("--test=*"),
            &["--", "-Dwarnings"],
        ),
        Check::new(
            "documentation",
            doc,
            &["--no-deps", "--document-private-items"],
        ),
    ]
}

/// Returns the checks of the BPF crate. They leave out the code that it shares with the agent: the
/// host's clippy has checked that, and two versions of clippy need not agree.
fn bpf_checks(workspace: &Workspace, toolchain: &Toolchain) -> Vec<Check> {
    let cargo = |verb: &str| {
        let mut cargo = toolchain.cargo(workspace, verb);
        cargo.args([
            "--profile=bpf",
            "--package=flannel-ebpf",
            "--target",
            BPF_TARGET,
            "--no-deps",
        ]);
        cargo
            .args(workspace::locked())
            .env("RUSTDOCFLAGS", "-Dwarnings");
        cargo
    };
    vec![
        Check::new("clippy for BPF", cargo("clippy"), &["--", "-Dwarnings"]),
        Check::new(
            "documentation for BPF",
            cargo("doc"),
            &["--document-private-items"],
        ),
    ]
}

/// A check of the sources themselves, below the workspace's root.
type SourceCheck = fn(&Path) -> anyhow::Result<()>;

const SOURCE_CHECKS: [(&str, SourceCheck); 8] = [
    ("layers", layers),
    ("size", size),
    ("dependencies", dependencies),
    ("types", types),
    ("language", language),
    ("glossary", glossary),
    ("changes", changes),
    ("names of code", code_names),
];

/// Crates of which users see nothing. Help, log lines and errors of the others are checked too.
const TOOLS: [&str; 4] = ["xtask", "tests", "crates/fuzz", "crates/json-schema"];

/// The folders of all crates, below the workspace's root.
fn crates(root: &Path) -> anyhow::Result<Vec<String>> {
    let folders = package_dirs(root)?.into_iter();
    folders
        .map(|folder| Ok(folder.strip_prefix(root)?.to_string_lossy().into_owned()))
        .collect()
}

/// Returns the documents: those at the root, and all below docs/.
fn pages(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let docs = root.join("docs");
    let (mut pages, mut folders) = (Vec::new(), vec![root.to_owned(), docs.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in folder
            .read_dir()
            .with_context(|| format!("reading the folder {}", folder.display()))?
        {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            } else if path.starts_with(&docs) && path.is_dir() && path != docs {
                folders.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

fn layers(root: &Path) -> anyhow::Result<()> {
    of_each_crate(root, |name, src| {
        // Users and nodes run neither of the two, so their folders are enough.
        let (circles, parts) = if ["xtask", "tests"].contains(&name) {
            (layers::circles_of_folders(src)?, "modules")
        } else {
            (layers::circles(src)?, "files")
        };
        let line = |circle: Vec<String>| {
            format!(
                "{name}: these {parts} import each other: {}",
                circle.join(", ")
            )
        };
        Ok(circles.into_iter().map(line).collect())
    })
}

fn size(root: &Path) -> anyhow::Result<()> {
    of_each_crate(root, |name, src| {
        Ok(size::findings(name, src)?.into_iter().collect())
    })
}

fn dependencies(root: &Path) -> anyhow::Result<()> {
    refuse(&dependencies::findings(root)?)
}

fn types(root: &Path) -> anyhow::Result<()> {
    of_each_crate(root, types::findings)
}

/// Refuses what a check finds in each crate, by its name and the folder of its sources.
fn of_each_crate(
    root: &Path,
    check: impl Fn(&str, &Path) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for name in crates(root)? {
        found.extend(check(&name, &root.join(&name).join("src"))?);
    }
    refuse(&found)
}

fn language(root: &Path) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for name in crates(root)? {
        let folder = root.join(&name);
        found.extend(language::findings(&folder)?);
        if !TOOLS.contains(&name.as_str()) {
            found.extend(language::string_findings(&folder.join("src"))?);
        }
    }
    for page in pages(root)? {
        found.extend(language::page_findings(&page)?);
    }
    refuse(&found)
}

fn glossary(root: &Path) -> anyhow::Result<()> {
    let sources: Vec<_> = crates(root)?
        .into_iter()
        .map(|name| root.join(name).join("src"))
        .collect();
    refuse(&glossary::findings(
        &root.join("docs/reference/glossary.md"),
        &sources,
    )?)
}

fn changes(root: &Path) -> anyhow::Result<()> {
    refuse(&changes::findings(root)?)
}

fn code_names(root: &Path) -> anyhow::Result<()> {
    // The changelog names what there was.
    let mut pages = pages(root)?;
    pages.retain(|page| !page.ends_with("CHANGELOG.md"));
    refuse(&code_names::findings(root, &pages)?)
}

/// Fails with all findings, a line each.
fn refuse(findings: &[String]) -> anyhow::Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    bail!("{}", findings.join("\n"))
}
