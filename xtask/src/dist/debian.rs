//! Puts a release build into Debian packages: the agent with the bills of materials of what is in
//! it, the CNI plugin, and the plugin of kubectl.
//!
//! It owns where each file lies on a host; what the files are comes from the build, from `deploy/`
//! and from the agent itself (manual pages, completions). A package is put together in a new
//! directory and packed by `dpkg-deb`.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};

use crate::{
    build::Built,
    files::{install, install_program, remove, write},
    image::{self, open_directories},
    workspace::{self, Workspace, output},
};

/// Name of the section with a program's crates, as the table of section names has it.
const CRATES: &[u8] = b".dep-v0\0";
/// The settings of the unit, as in the project and as installed. There may be a password in them.
const SETTINGS: (&str, &str) = (
    "deploy/systemd/flannel-agent.default",
    "etc/default/flannel-agent",
);
/// Other files, as in the project and as installed.
const FILES: [(&str, &str); 4] = [
    (
        "deploy/systemd/flannel-agent.service",
        "lib/systemd/system/flannel-agent.service",
    ),
    (
        "deploy/seccomp/flannel-agent.json",
        "usr/share/flannel-agent/seccomp.json",
    ),
    ("README.md", "usr/share/doc/flannel-agent/README.md"),
    ("CHANGELOG.md", "usr/share/doc/flannel-agent/CHANGELOG.md"),
];
/// Shells, and where each looks for the completions of `flannel-agent`.
const COMPLETIONS: [(&str, &str); 3] = [
    (
        "bash",
        "usr/share/bash-completion/completions/flannel-agent",
    ),
    ("zsh", "usr/share/zsh/vendor-completions/_flannel-agent"),
    (
        "fish",
        "usr/share/fish/vendor_completions.d/flannel-agent.fish",
    ),
];

/// A package.
struct Package {
    name: &'static str,
    /// Its program, as built and as installed.
    program: (&'static str, &'static str),
    /// Fields of the control file that are its own: relations to other packages, and the
    /// description.
    fields: &'static str,
}

/// The agent links only the C library; nft or iptables is for the traffic rules.
const AGENT: Package = Package {
    name: "flannel-agent",
    program: ("flannel-agent", "usr/sbin/flannel-agent"),
    fields: "Recommends: nftables | iptables, flannel-cni, containernetworking-plugins\n\
             Conflicts: flannel\n\
             Description: flannel with an eBPF datapath\n \
             A drop-in replacement for flanneld. It shares a cluster with stock flannel nodes,\n \
             through etcd or Kubernetes.\n",
};

/// Packages that are a program and its licence.
const SINGLE: [Package; 2] = [
    Package {
        name: "flannel-cni",
        program: ("flannel", "usr/lib/cni/flannel"),
        // Debian 11 has stock's plugin in that package.
        fields: "Recommends: containernetworking-plugins\n\
                 Breaks: containernetworking-plugins (<< 1.0)\n\
                 Replaces: containernetworking-plugins (<< 1.0)\n\
                 Description: CNI plugin flannel\n \
                 It completes the configuration of the plugins bridge and host-local with the \
                 subnet\n \
                 and the MTU that a flannel agent wrote.\n",
    },
    Package {
        name: "kubectl-flannel",
        program: ("flannel-agent", "usr/bin/kubectl-flannel"),
        fields: "Enhances: kubernetes-client\n\
                 Description: kubectl plugin for clusters that run flannel-agent\n \
                 It shows the state, rates and flows of all nodes, explains the way of a packet, \
                 and\n \
                 tests that pods reach each other.\n",
    },
];

impl Package {
    /// The directory for its files, which has its program.
    fn tree(&self, workspace: &Workspace, built: &Built) -> anyhow::Result<PathBuf> {
        let tree = workspace.target().join("dist-parts").join(self.name);
        remove(&tree)?;
        let (name, installed) = self.program;
        let program = tree.join(installed);
        install_program(workspace, built, name, &program)?;
        let bytes =
            fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
        let has_crates = bytes.windows(CRATES.len()).any(|window| window == CRATES);
        ensure!(
            has_crates,
            "{} does not list its crates (section .dep-v0 of cargo-auditable)",
            program.display()
        );
        let copyright = tree.join("usr/share/doc").join(self.name).join("copyright");
        install(&workspace.root().join("LICENSE"), &copyright, 0o644)?;
        Ok(tree)
    }

    /// Packs the directory; where the package is.
    fn pack(
        &self,
        workspace: &Workspace,
        built: &Built,
        tree: &Path,
        dist: &Path,
    ) -> anyhow::Result<PathBuf> {
        let architecture = built.architecture();
        write(&tree.join("DEBIAN/control"), &self.control(architecture))?;
        open_directories(tree)?;
        let package = dist.join(format!(
            "{}_{}_{architecture}.deb",
            self.name,
            env!("CARGO_PKG_VERSION")
        ));
        let mut pack = workspace.command("dpkg-deb");
        // Times of files become that of the epoch, so that the same files make the same package.
        pack.env("SOURCE_DATE_EPOCH", image::epoch()?.to_string());
        pack.args(["--build", "--root-owner-group"])
            .arg(tree)
            .arg(&package);
        workspace::run(&mut pack, "dpkg-deb")?;
        Ok(package)
    }

    /// Returns the control file.
    fn control(&self, architecture: &str) -> String {
        // The CNI plugin is static.
        let libraries = format!(
            "Depends: libc6 (>= {}), libgcc-s1\n",
            super::c_library::OLDEST
        );
        format!(
            "Package: {}\n\
             Version: {}\n\
             Architecture: {architecture}\n\
             Maintainer: The flannel-agent developers <flannel-agent@localhost>\n\
             Section: net\n\
             Priority: optional\n\
             {}{}",
            self.name,
            env!("CARGO_PKG_VERSION"),
            if self.program.0 == AGENT.program.0 {
                &libraries
            } else {
                ""
            },
            self.fields
        )
    }
}

/// Makes the packages in the folder of the release; where they are. `agent` is one that this
/// machine can run, of the same source.
pub(super) fn packages(
    workspace: &Workspace,
    built: &Built,
    bills: &[PathBuf],
    agent: &Path,
    dist: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    let tree = AGENT.tree(workspace, built)?;
    symlink("flannel-agent", tree.join("usr/sbin/flanneld")).context("cannot link flanneld")?;
    for (name, installed) in FILES {
        install(&workspace.root().join(name), &tree.join(installed), 0o644)?;
    }
    install(
        &workspace.root().join(SETTINGS.0),
        &tree.join(SETTINGS.1),
        0o600,
    )?;
    write(
        &tree.join("DEBIAN/conffiles"),
        &format!("/{}\n", SETTINGS.1),
    )?;
    // README leads to them.
    install_all(
        &workspace.root().join("docs"),
        &tree.join("usr/share/doc/flannel-agent/docs"),
    )?;
    for bill in bills {
        let name = bill.file_name().context("a bill is a file")?;
        install(
            bill,
            &tree.join("usr/share/doc/flannel-agent").join(name),
            0o644,
        )?;
    }
    generate(workspace, agent, &tree)?;
    let mut packages = vec![AGENT.pack(workspace, built, &tree, dist)?];
    for package in SINGLE {
        let tree = package.tree(workspace, built)?;
        packages.push(package.pack(workspace, built, &tree, dist)?);
    }
    Ok(packages)
}

/// Manual pages and completions, by the agent itself.
fn generate(workspace: &Workspace, agent: &Path, tree: &Path) -> anyhow::Result<()> {
    let manual = tree.join("usr/share/man/man8");
    workspace::run(
        workspace.command(agent).arg("manual").arg(&manual),
        "flannel-agent manual",
    )?;
    for (shell, installed) in COMPLETIONS {
        write(
            &tree.join(installed),
            &output(workspace.command(agent).args(["completions", shell]))?,
        )?;
    }
    Ok(())
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
    fn each_control_file_has_a_folded_description_and_its_own_name() {
        for package in [AGENT].iter().chain(&SINGLE) {
            let text = package.control("amd64");
            assert!(
                text.starts_with(&format!("Package: {}\n", package.name)),
                "{text}"
            );
            assert!(
                text.contains("\nArchitecture: amd64\n") && text.ends_with(".\n"),
                "{text}"
            );
            let (fields, description) = text.split_once("Description: ").expect("a description");
            assert!(fields.lines().all(|line| line.contains(": ")), "{text}");
            assert!(
                description
                    .lines()
                    .skip(1)
                    .all(|line| line.starts_with(' ')),
                "{text}"
            );
            assert_eq!(
                text.contains("libc6"),
                package.name != "flannel-cni",
                "{text}"
            );
        }
    }
}
