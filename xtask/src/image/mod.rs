//! The container image, without a container runtime: Debian's packages and our programs, as an OCI
//! image layout in one archive.
//!
//! It owns what is in the image and where. The archive has the manifest of `docker save` too, so
//! that `docker load`, `ctr images import`, `k3s ctr images import`, `kind load image-archive` and
//! skopeo read it. The same packages and programs make the same archive.

pub(crate) mod layout;
pub(crate) mod root;
mod unused;

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use self::layout::{Compression, Layer, Layout};
use crate::{
    build::{Built, Profile},
    files,
    setup::{Needs, Setup},
    workspace::{self, Workspace},
};

/// The name of the image, without a registry.
const NAME: &str = "flannel-agent";
/// The search path of an image's containers.
pub(crate) const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Debian's packages in the image; what they depend on comes too, if something needs it.
/// Without them the agent could not write traffic rules (iptables, nftables), `bugtool` and `check`
/// not look at the kernel (iproute2, ethtool), manifests and scripts of flannel not run their
/// commands (busybox: a shell, `cp`, tar for `kubectl cp`), and `install --cni-plugins` not bring
/// the plugins to nodes without them.
const PACKAGES: &[&str] = &[
    "base-files",
    "base-passwd",
    "busybox",
    "ca-certificates",
    "containernetworking-plugins",
    "ethtool",
    "iproute2",
    "iptables",
    "nftables",
];

/// strongSwan's charon for the backend ipsec, with its algorithms, its control interface (in
/// strongswan-swanctl) and the libraries that no package above depends on. Its packages depend on
/// more: what starts a service, and with that Perl, 69 MB in all.
const STRONGSWAN: &[&str] = &[
    "libgcrypt20",
    "libgpg-error0",
    "liblz4-1",
    "liblzma5",
    "libstrongswan",
    "libstrongswan-standard-plugins",
    "libsystemd0",
    "libzstd1",
    "strongswan-charon",
    "strongswan-libcharon",
    "strongswan-swanctl",
];

/// The plugins that pods of flannel's configuration need, of the package that has twenty.
const CNI_PLUGINS: [&str; 5] = ["bandwidth", "bridge", "host-local", "loopback", "portmap"];

/// Our programs, as built and in the image.
const PROGRAMS: [(&str, &str); 2] = [
    ("flannel-agent", "opt/bin/flannel-agent"),
    ("flannel", "opt/cni/flannel"),
];
/// Other files, as in the project and in the image, with their modes.
const FILES: [(&str, &str, u32); 3] = [
    (
        "scripts/mk-docker-opts.sh",
        "opt/bin/mk-docker-opts.sh",
        0o755,
    ),
    (
        "deploy/seccomp/flannel-agent.json",
        "opt/share/flannel-agent.json",
        0o644,
    ),
    ("LICENSE", "usr/share/doc/flannel-agent/copyright", 0o644),
];
/// Links, with what they lead to. Manifests and charts of flannel call the first three: two in the
/// image of flannel, the third in that of its CNI plugin.
const LINKS: [(&str, &str); 4] = [
    ("opt/bin/flanneld", "flannel-agent"),
    ("opt/bin/install-conf", "flannel-agent"),
    ("flannel", "opt/cni/flannel"),
    ("usr/local/bin/flannel-agent", "/opt/bin/flannel-agent"),
];

/// Makes the image; where it is.
pub(crate) fn make(setup: &Setup<'_>, built: &Built) -> anyhow::Result<PathBuf> {
    setup.machine(Needs::IMAGE)?;
    let workspace = setup.workspace();
    let architecture = built.architecture();
    let dir = workspace.target().join("image");
    files::remove(&dir)?;
    let epoch = epoch()?;
    println!("image: Debian's packages");
    let base = dir.join("base");
    let debs = dir.join("debs");
    let more = dir.join("strongswan");
    let packages = if architecture == workspace.architecture()? {
        [
            setup.closure(PACKAGES, &debs)?,
            setup.fetch(STRONGSWAN, &more)?,
        ]
        .concat()
    } else {
        let closure = setup.foreign_closure(architecture, PACKAGES, &debs)?;
        [closure, setup.foreign(architecture, STRONGSWAN, &more)?].concat()
    };
    root::make(workspace, &packages, &base)?;
    keep_plugins(&base.join("usr/lib/cni"))?;
    println!("image: our programs");
    let ours = dir.join("ours");
    add_ours(workspace, built, &ours)?;
    unused::remove(&base, &ours)?;
    root::record(workspace, &packages, &base)?;
    let compression = match built.profile() {
        Profile::Dev => Compression::Fast,
        Profile::Release => Compression::Small,
    };
    let layers = [
        Layer::of(workspace, &base, "Debian's packages", epoch, compression)?,
        Layer::of(workspace, &ours, "flannel-agent", epoch, compression)?,
    ];
    let name = format!(
        "flannel-agent_{}_{architecture}.oci.tar",
        env!("CARGO_PKG_VERSION")
    );
    let archive = workspace.target().join("dist").join(name);
    let tag = format!("{NAME}:{}", env!("CARGO_PKG_VERSION"));
    let layout = Layout {
        names: &[&tag],
        architecture,
        layers: &layers,
        container: container(),
        epoch,
    };
    layout.write(workspace, &dir.join("layout"), &archive)?;
    Ok(archive)
}

/// The variable with the search path, as the configuration of an image has it.
pub(crate) fn search_path() -> String {
    format!("PATH={SEARCH_PATH}")
}

fn container() -> Value {
    json!({
        "Entrypoint": ["/opt/bin/flanneld"],
        "Env": [search_path()],
        "Labels": {
            "org.opencontainers.image.title": NAME,
            "org.opencontainers.image.description": "flannel with an eBPF datapath",
            "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
            "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
        },
    })
}

/// Returns the time of every file. It does not depend on the time of the build, so that builds are
/// reproducible.
pub(crate) fn epoch() -> anyhow::Result<u64> {
    match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text
            .parse()
            .with_context(|| format!("SOURCE_DATE_EPOCH={text}: not seconds since 1970")),
        Err(_) => Ok(0),
    }
}

fn keep_plugins(dir: &Path) -> anyhow::Result<()> {
    for name in CNI_PLUGINS {
        ensure!(
            dir.join(name).is_file(),
            "the package containernetworking-plugins has no {name}"
        );
    }
    for plugin in fs::read_dir(dir)? {
        let plugin = plugin?;
        if !CNI_PLUGINS.iter().any(|name| plugin.file_name() == *name) {
            fs::remove_file(plugin.path())?;
        }
    }
    Ok(())
}

fn add_ours(workspace: &Workspace, built: &Built, tree: &Path) -> anyhow::Result<()> {
    for (name, installed) in PROGRAMS {
        let program = tree.join(installed);
        files::install_program(workspace, built, name, &program)?;
    }
    for (name, installed, mode) in FILES {
        files::install(&workspace.root().join(name), &tree.join(installed), mode)?;
    }
    for (link, to) in LINKS {
        let link = tree.join(link);
        files::make_parent(&link)?;
        symlink(to, &link).with_context(|| format!("cannot link {}", link.display()))?;
    }
    // The umask of this process does not reach the image.
    open_directories(tree)
}

/// Lets everybody into the directories of a tree, whatever the umask of this process is.
pub(crate) fn open_directories(tree: &Path) -> anyhow::Result<()> {
    fs::set_permissions(tree, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(tree)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_directories(&entry.path())?;
        }
    }
    Ok(())
}

/// The first word of what `sha256sum` prints.
pub(crate) fn digest(workspace: &Workspace, file: &Path) -> anyhow::Result<String> {
    let text = workspace::output(workspace.command("sha256sum").arg("--").arg(file))?;
    let digest = text.split_ascii_whitespace().next().unwrap_or_default();
    ensure!(digest.len() == 64, "sha256sum printed {text:?}");
    Ok(digest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_image_is_in_the_project() {
        let workspace = Workspace::new().expect("the project");
        for (name, _, _) in FILES {
            assert!(workspace.root().join(name).is_file(), "{name}");
        }
        assert!(PACKAGES.is_sorted() && STRONGSWAN.is_sorted());
    }
}
