//! The programs next to a kernel: this machine's own, or those of another architecture, unpacked
//! below `target/kernels`.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::architecture::Architecture;
use crate::{files, image::root, setup::Setup};

/// Packages that bring what the tests call, as on this machine.
const PACKAGES: [&str; 26] = [
    "base-passwd",
    "bash",
    "busybox-static",
    "containernetworking-plugins",
    "coreutils",
    "dash",
    "etcd-client",
    "etcd-server",
    "ethtool",
    "findutils",
    "grep",
    "gzip",
    "iperf3",
    "iproute2",
    "iptables",
    "iputils-ping",
    "kmod",
    "mawk",
    "mount",
    "nftables",
    "procps",
    "sed",
    "tar",
    "tcpdump",
    "util-linux",
    "wireguard-tools",
];

/// A root directory.
#[derive(Clone, Debug)]
pub(super) struct Userland {
    /// Its path on this machine.
    pub(super) root: PathBuf,
    /// Its busybox.
    pub(super) busybox: PathBuf,
}

impl Userland {
    /// Finds it, or fetches its packages.
    pub(super) fn ensure(setup: &Setup<'_>, architecture: Architecture) -> anyhow::Result<Self> {
        if architecture == Architecture::Amd64 {
            let busybox = setup.workspace().find_command("busybox");
            let busybox = busybox.context("busybox is not in PATH: install busybox-static")?;
            return Ok(Self {
                root: "/".into(),
                busybox,
            });
        }
        let root = setup
            .workspace()
            .target()
            .join("kernels/userland")
            .join(architecture.name());
        // A directory of another list of packages is made again.
        let (list, packages) = (root.with_extension("packages"), PACKAGES.join("\n"));
        if !root.is_dir() || fs::read_to_string(&list).ok().as_ref() != Some(&packages) {
            println!("kernels: fetch programs for {}, 80 MB", architecture.name());
            fetch(setup, architecture, &root)
                .with_context(|| format!("cannot get programs for {}", architecture.name()))?;
            files::write(&list, &packages)?;
        }
        Ok(Self {
            busybox: root.join("bin/busybox"),
            root,
        })
    }
}

/// Unpacks next to the final place and renames, so that an interrupted run leaves no directory that
/// looks complete.
fn fetch(setup: &Setup<'_>, architecture: Architecture, root: &Path) -> anyhow::Result<()> {
    let (debs, partial) = (root.with_extension("debs"), root.with_extension("partial"));
    for stale in [&*debs, &partial, root] {
        files::remove(stale)?;
    }
    for package in setup.foreign_closure(architecture.name(), &PACKAGES, &debs)? {
        setup.extract(&package, &partial)?;
    }
    // Their scripts, which make these, do not run.
    root::link_iptables(&partial)?;
    root::accounts(&partial)?;
    for (to, name) in [("dash", "bin/sh"), ("mawk", "usr/bin/awk")] {
        let link = partial.join(name);
        files::remove(&link)?;
        symlink(to, &link).with_context(|| format!("cannot link {}", link.display()))?;
    }
    fs::rename(&partial, root).with_context(|| format!("cannot rename {}", partial.display()))?;
    fs::remove_dir_all(&debs).with_context(|| format!("cannot remove {}", debs.display()))
}
