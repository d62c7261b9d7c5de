//! Archives of a release that are not packages: the programs of an architecture.

use std::path::{Path, PathBuf};

use crate::{
    build::Built,
    files,
    workspace::{self, Workspace},
};

const PROGRAMS: [&str; 2] = ["flannel-agent", "flannel"];
/// Other files, as in the project and in the archive.
const FILES: [(&str, &str); 6] = [
    ("LICENSE", "LICENSE"),
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    (
        "deploy/systemd/flannel-agent.service",
        "systemd/flannel-agent.service",
    ),
    (
        "deploy/systemd/flannel-agent.default",
        "systemd/flannel-agent.default",
    ),
    ("scripts/mk-docker-opts.sh", "mk-docker-opts.sh"),
];

/// Archives the programs, and the files that they need on hosts without a package manager.
pub(super) fn programs(
    workspace: &Workspace,
    built: &Built,
    dist: &Path,
) -> anyhow::Result<PathBuf> {
    let name = format!(
        "flannel-agent-{}-linux-{}",
        env!("CARGO_PKG_VERSION"),
        built.architecture()
    );
    let parts = empty(workspace)?;
    let tree = parts.join(&name);
    for program in PROGRAMS {
        files::install_program(workspace, built, program, &tree.join(program))?;
    }
    for (file, installed) in FILES {
        let mode = if installed.ends_with("opts.sh") {
            0o755
        } else {
            0o644
        };
        files::install(&workspace.root().join(file), &tree.join(installed), mode)?;
    }
    pack(
        workspace,
        &parts,
        &name,
        dist.join(format!("{name}.tar.gz")),
    )
}

/// Packs a directory below another so that the same files make the same archive.
pub(super) fn pack(
    workspace: &Workspace,
    below: &Path,
    name: &str,
    archive: PathBuf,
) -> anyhow::Result<PathBuf> {
    let mut tar = workspace.command("tar");
    tar.args([
        "--create",
        "--use-compress-program=gzip -9n",
        "--format=gnu",
        "--sort=name",
        "--dereference",
    ]);
    tar.args([
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
        "--mode=a+rX,u+w,go-w",
        "--file",
    ]);
    tar.arg(&archive).arg("--directory").arg(below);
    // Helm wants the directory to have the chart's name.
    tar.args(["--transform=s,^kube-flannel,flannel,", name]);
    workspace::run(&mut tar, "tar")?;
    Ok(archive)
}

pub(super) fn empty(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let dir = workspace.target().join("dist-parts/archive");
    files::remove(&dir)?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_in_the_project() {
        let workspace = Workspace::new().expect("the project");
        for (name, _) in FILES {
            assert!(workspace.root().join(name).is_file(), "{name}");
        }
    }
}
