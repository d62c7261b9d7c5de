//! The plugin of kubectl for krew, kubectl's plugin manager: an archive for each architecture, and
//! the manifest that names them
//! ([format](https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/)).

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::tarball;
use crate::{build::Built, files, image::digest, workspace::Workspace};

/// The program, as kubectl looks for it.
const PROGRAM: &str = "kubectl-flannel";

/// The archive of one architecture.
#[derive(Debug)]
pub(super) struct KrewArchive {
    pub(super) file: PathBuf,
    architecture: String,
}

impl KrewArchive {
    /// Makes it in the folder of the release.
    pub(super) fn make(workspace: &Workspace, built: &Built, dist: &Path) -> anyhow::Result<Self> {
        let architecture = built.architecture().to_owned();
        let parts = tarball::empty(workspace)?;
        let tree = parts.join("krew");
        files::install_program(workspace, built, "flannel-agent", &tree.join(PROGRAM))?;
        files::install(
            &workspace.root().join("LICENSE"),
            &tree.join("LICENSE"),
            0o644,
        )?;
        let name = format!(
            "{PROGRAM}-{}-linux-{architecture}.tar.gz",
            env!("CARGO_PKG_VERSION")
        );
        let file = tarball::pack(workspace, &tree, ".", dist.join(name))?;
        Ok(Self { file, architecture })
    }
}

/// Writes the manifest. `url` is the address below which the release will lie; without one the
/// manifest names files, which `kubectl krew install --manifest=... --archive=...` takes.
pub(super) fn manifest(
    workspace: &Workspace,
    archives: &[KrewArchive],
    url: Option<&str>,
    dist: &Path,
) -> anyhow::Result<()> {
    let platforms = archives.iter().map(|archive| {
        let name = archive
            .file
            .file_name()
            .context("an archive is a file")?
            .to_string_lossy();
        let place = url.map_or_else(
            || name.to_string(),
            |url| format!("{}/{name}", url.trim_end_matches('/')),
        );
        Ok(platform(
            &archive.architecture,
            &place,
            &digest(workspace, &archive.file)?,
        ))
    });
    let manifest = of_platforms(&platforms.collect::<anyhow::Result<Vec<_>>>()?);
    // YAML is a superset of JSON.
    files::write(&dist.join("flannel.yaml"), &format!("{manifest:#}\n"))
}

fn platform(architecture: &str, place: &str, digest: &str) -> Value {
    json!({
        "selector": { "matchLabels": { "os": "linux", "arch": architecture } },
        "uri": place,
        "sha256": digest,
        "bin": PROGRAM,
    })
}

fn of_platforms(platforms: &[Value]) -> Value {
    json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": { "name": "flannel" },
        "spec": {
            "version": concat!("v", env!("CARGO_PKG_VERSION")),
            "shortDescription": "State, rates and flows of nodes of flannel-agent",
            "description": "Shows the state, rates and flows of all nodes that run flannel-agent, \
                explains the way \
                            of a packet on both nodes, and tests that pods reach each other in \
                            each mode.",
            "caveats": "It runs commands in the agents' pods, for which it needs the right to \
                create pods/exec.",
            "platforms": platforms,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Krew refuses a manifest without these, and a short description of more than 50 characters is
    /// cut in its lists.
    #[test]
    fn the_manifest_has_what_krew_asks_for() {
        let manifest = of_platforms(&[platform("amd64", "https://example.org/a.tar.gz", "00")]);
        let spec = &manifest["spec"];
        assert_eq!(manifest["metadata"]["name"], "flannel");
        assert!(
            spec["version"]
                .as_str()
                .is_some_and(|version| version.starts_with('v')),
            "{spec}"
        );
        let short = spec["shortDescription"].as_str().expect("a text");
        assert!(short.len() <= 50 && !short.ends_with('.'), "{short}");
        let platform = &spec["platforms"][0];
        for key in ["uri", "sha256", "bin", "selector"] {
            assert!(!platform[key].is_null(), "{platform}");
        }
    }
}
