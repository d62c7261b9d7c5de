//! `upgrade`: another version of the agent, built once from a revision of the repository, for the
//! tests that go from it to the present one and back.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::{
    build::AGENT,
    files,
    workspace::{self, Workspace},
};

/// Builds the agent of a revision, or of the latest tag, with that tree's `cargo xtask build`.
/// Returns the program, which is kept.
pub(crate) fn build(workspace: &Workspace, revision: Option<&str>) -> anyhow::Result<PathBuf> {
    let revision = match revision {
        Some(revision) => revision.to_owned(),
        None => latest_tag(workspace)?,
    };
    let commit = git(
        workspace,
        &["rev-parse", "--verify", &format!("{revision}^{{commit}}")],
    )?;
    let folder = workspace.target().join("former").join(&commit);
    let program = folder.join(AGENT);
    if !program.exists() {
        println!("upgrade: build {revision} ({commit}), which takes about ten minutes, once");
        let tree = folder.join("tree");
        extract(workspace, &commit, &tree)?;
        build_tree(workspace, &tree)?;
        let built = tree.join("target/release").join(AGENT);
        fs::rename(&built, &program)
            .with_context(|| format!("the build made no {}", built.display()))?;
        fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    }
    println!("upgrade: {revision} is {}", program.display());
    Ok(program)
}

fn latest_tag(workspace: &Workspace) -> anyhow::Result<String> {
    git(workspace, &["describe", "--tags", "--abbrev=0"])
        .context("no release has a tag yet: name a revision, --from")
}

fn git(workspace: &Workspace, args: &[&str]) -> anyhow::Result<String> {
    Ok(workspace::output(workspace.command("git").args(args))?
        .trim()
        .to_owned())
}

/// Writes the files of a commit to a folder, in place of what a stopped build left there.
fn extract(workspace: &Workspace, commit: &str, tree: &Path) -> anyhow::Result<()> {
    files::remove(tree)?;
    fs::create_dir_all(tree).with_context(|| format!("cannot create {}", tree.display()))?;
    let archive = tree.with_extension("tar");
    workspace::run(
        workspace
            .command("git")
            .args(["archive", commit, "--output"])
            .arg(&archive),
        "git archive",
    )?;
    workspace::run(
        workspace
            .command("tar")
            .arg("-xf")
            .arg(&archive)
            .arg("-C")
            .arg(tree),
        "tar",
    )?;
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
}

/// Runs `cargo xtask build` in another tree, with a target directory of that tree.
fn build_tree(workspace: &Workspace, tree: &Path) -> anyhow::Result<()> {
    let mut cargo = workspace.cargo();
    cargo
        .current_dir(tree)
        .env_remove("CARGO_TARGET_DIR")
        .args(["xtask", "build"]);
    workspace::run(&mut cargo, "the build of the other version")
}
