//! Puts a release build into a Debian package, with the bills of materials of what is in it.
//!
//! It owns where each file lies on a host; what the files are comes from the build, from `deploy/`
//! and from the agent itself (manual pages, completions). The package is put together in a new
//! directory and packed by `dpkg-deb`.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};

use crate::{
    build::Built,
    files::{install, install_program, write},
    image::open_directories,
    workspace::{self, Workspace, output},
};

/// Programs, as built and as installed.
const PROGRAMS: [(&str, &str); 2] = [("flannel-agent", "usr/sbin/flannel-agent"), ("flannel", "usr/lib/cni/flannel")];
/// Name of the section with a program's crates, as the table of section names has it.
const CRATES: &[u8] = b".dep-v0\0";
/// The settings of the unit, as in the project and as installed. There may be a password in them.
const SETTINGS: (&str, &str) = ("deploy/systemd/flannel-agent.default", "etc/default/flannel-agent");
/// Other files, as in the project and as installed.
const FILES: [(&str, &str); 5] = [
    ("deploy/systemd/flannel-agent.service", "lib/systemd/system/flannel-agent.service"),
    ("deploy/seccomp/flannel-agent.json", "usr/share/flannel-agent/seccomp.json"),
    ("LICENSE", "usr/share/doc/flannel-agent/copyright"),
    ("README.md", "usr/share/doc/flannel-agent/README.md"),
    ("CHANGELOG.md", "usr/share/doc/flannel-agent/CHANGELOG.md"),
];
/// Shells, and where each looks for the completions of `flannel-agent`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/flannel-agent"),
    ("zsh", "usr/share/zsh/vendor-completions/_flannel-agent"),
    ("fish", "usr/share/fish/vendor_completions.d/flannel-agent.fish"),
];

/// Makes the package in the folder of the release; where it is. `agent` is one that this machine
/// can run, of the same source.
pub(super) fn package(
    workspace: &Workspace,
    built: &Built,
    bills: &[PathBuf],
    agent: &Path,
    dist: &Path,
) -> anyhow::Result<PathBuf> {
    let tree = workspace.target().join("dist-parts/debian");
    if tree.exists() {
        fs::remove_dir_all(&tree).with_context(|| format!("cannot clear {}", tree.display()))?;
    }
    for (name, installed) in PROGRAMS {
        let program = tree.join(installed);
        install_program(workspace, built, name, &program)?;
        let bytes = fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
        let has_crates = bytes.windows(CRATES.len()).any(|window| window == CRATES);
        ensure!(has_crates, "{} does not list its crates (section .dep-v0 of cargo-auditable)", program.display());
    }
    symlink("flannel-agent", tree.join("usr/sbin/flanneld")).context("cannot link flanneld")?;
    for (name, installed) in FILES {
        install(&workspace.root().join(name), &tree.join(installed), 0o644)?;
    }
    install(&workspace.root().join(SETTINGS.0), &tree.join(SETTINGS.1), 0o600)?;
    // README leads to them.
    install_all(&workspace.root().join("docs"), &tree.join("usr/share/doc/flannel-agent/docs"))?;
    for bill in bills {
        let name = bill.file_name().context("a bill is a file")?;
        install(bill, &tree.join("usr/share/doc/flannel-agent").join(name), 0o644)?;
    }
    generate(workspace, agent, &tree)?;
    let architecture = built.architecture();
    write(&tree.join("DEBIAN/control"), &control(architecture))?;
    write(&tree.join("DEBIAN/conffiles"), &format!("/{}\n", SETTINGS.1))?;
    open_directories(&tree)?;
    let package = dist.join(format!("flannel-agent_{}_{architecture}.deb", env!("CARGO_PKG_VERSION")));
    let mut pack = workspace.command("dpkg-deb");
    pack.args(["--build", "--root-owner-group"]).arg(&tree).arg(&package);
    workspace::run(&mut pack, "dpkg-deb")?;
    Ok(package)
}

/// Manual pages and completions, by the agent itself.
fn generate(workspace: &Workspace, agent: &Path, tree: &Path) -> anyhow::Result<()> {
    let manual = tree.join("usr/share/man/man8");
    workspace::run(workspace.command(agent).arg("manual").arg(&manual), "flannel-agent manual")?;
    for (shell, installed) in COMPLETIONS {
        write(&tree.join(installed), &output(workspace.command(agent).args(["completions", shell]))?)?;
    }
    Ok(())
}

/// Returns the control file of the package. The agent links only the C library; nft or iptables is
/// for the traffic rules.
fn control(architecture: &str) -> String {
    format!(
        "Package: flannel-agent\n\
         Version: {}\n\
         Architecture: {architecture}\n\
         Maintainer: The flannel-agent developers <flannel-agent@localhost>\n\
         Section: net\n\
         Priority: optional\n\
         Depends: libc6 (>= {}), libgcc-s1\n\
         Recommends: nftables | iptables, containernetworking-plugins\n\
         Conflicts: flannel\n\
         Description: flannel with an eBPF datapath\n \
         A drop-in replacement for flanneld, and the CNI plugin flannel. It shares a cluster with\n \
         stock flannel nodes, through etcd or Kubernetes.\n",
        env!("CARGO_PKG_VERSION"),
        super::c_library::OLDEST
    )
}

/// Every file below a directory, for all to read.
fn install_all(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let destination = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            install_all(&entry.path(), &destination)?;
        } else {
            install(&entry.path(), &destination, 0o644)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_in_the_project() {
        let workspace = Workspace::new().expect("the project");
        for (name, _) in FILES.iter().chain([&SETTINGS]) {
            assert!(workspace.root().join(name).is_file(), "{name}");
        }
    }

    #[test]
    fn the_control_file_has_a_folded_description() {
        let text = control("amd64");
        assert!(text.contains("\nArchitecture: amd64\n"), "{text}");
        let (_, description) = text.split_once("Description: ").expect("a description");
        assert!(description.lines().skip(1).all(|line| line.starts_with(' ')), "{text}");
    }
}
