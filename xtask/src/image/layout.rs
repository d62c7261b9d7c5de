//! The archive of an image: layers, configuration and manifests, as the OCI image specification 1.0
//! has them, and the manifest of `docker save` for those who read no other.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::digest;
use crate::{
    files,
    workspace::{self, Workspace},
};

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The name of the image, without a registry.
const NAME: &str = "flannel-agent";

/// A file of the image's store, named by its digest.
#[derive(Debug)]
struct Blob {
    file: PathBuf,
    digest: String,
    bytes: u64,
}

impl Blob {
    fn of(workspace: &Workspace, file: PathBuf) -> anyhow::Result<Self> {
        let digest = digest(workspace, &file)?;
        let bytes = fs::metadata(&file).with_context(|| format!("cannot read {}", file.display()))?.len();
        Ok(Self { file, digest, bytes })
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": format!("sha256:{}", self.digest), "size": self.bytes })
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }
}

/// A part of the image's file system.
#[derive(Debug)]
pub(super) struct Layer {
    compressed: Blob,
    /// The digest of what was compressed.
    contents: String,
    created_by: &'static str,
}

impl Layer {
    /// Packs a directory.
    pub(super) fn of(workspace: &Workspace, tree: &Path, created_by: &'static str, epoch: u64) -> anyhow::Result<Self> {
        let archive = tree.with_extension("tar");
        workspace::run(tar(workspace, tree, &archive, epoch).arg("."), "tar")?;
        let contents = digest(workspace, &archive)?;
        workspace::run(workspace.command("gzip").args(["--no-name", "-6", "--force"]).arg(&archive), "gzip")?;
        let compressed = Blob::of(workspace, tree.with_extension("tar.gz"))?;
        Ok(Self { compressed, contents, created_by })
    }
}

/// The start of a command that packs parts of a directory, in an order and with times and owners
/// that do not depend on this machine.
fn tar(workspace: &Workspace, dir: &Path, archive: &Path, epoch: u64) -> Command {
    let mut tar = workspace.command("tar");
    tar.args(["--create", "--format=gnu", "--sort=name", "--numeric-owner", &format!("--mtime=@{epoch}")]);
    tar.args(["--owner=0", "--group=0", "--file"]).arg(archive).arg("--directory").arg(dir);
    tar
}

/// An image.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    /// As Debian and Go call it.
    pub(super) architecture: &'a str,
    pub(super) layers: &'a [Layer],
    /// The time of creation, in seconds since 1970.
    pub(super) epoch: u64,
}

impl Layout<'_> {
    /// Writes the archive, by way of a directory.
    pub(super) fn write(&self, workspace: &Workspace, dir: &Path, archive: &Path) -> anyhow::Result<()> {
        let config = Self::blob(workspace, dir, "config", &self.config())?;
        let manifest = Self::blob(workspace, dir, "manifest", &self.manifest(&config))?;
        let tag = format!("{NAME}:{}", env!("CARGO_PKG_VERSION"));
        files::write(&dir.join("index.json"), &Self::index(&manifest, &tag).to_string())?;
        files::write(&dir.join("oci-layout"), &json!({ "imageLayoutVersion": "1.0.0" }).to_string())?;
        files::write(&dir.join("manifest.json"), &self.docker_manifest(&config, &tag).to_string())?;
        for layer in self.layers {
            let blob = &layer.compressed;
            files::install(&blob.file, &dir.join(blob.path()), 0o644)?;
        }
        files::make_parent(archive)?;
        let mut tar = tar(workspace, dir, archive, self.epoch);
        tar.args(["--mode=a+rX,u+w,go-w", "blobs", "index.json", "manifest.json", "oci-layout"]);
        workspace::run(&mut tar, "tar")
    }

    /// Writes a document to the store.
    fn blob(workspace: &Workspace, dir: &Path, name: &str, document: &Value) -> anyhow::Result<Blob> {
        let named = dir.with_extension(name);
        files::write(&named, &document.to_string())?;
        let blob = Blob::of(workspace, named)?;
        files::install(&blob.file, &dir.join(blob.path()), 0o644)?;
        Ok(blob)
    }

    fn config(&self) -> Value {
        let diff_ids: Vec<String> = self.layers.iter().map(|layer| format!("sha256:{}", layer.contents)).collect();
        let history: Vec<Value> = self.layers.iter().map(|layer| json!({ "created_by": layer.created_by })).collect();
        json!({
            "architecture": self.architecture,
            "os": "linux",
            "config": {
                "Entrypoint": ["/opt/bin/flanneld"],
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Labels": {
                    "org.opencontainers.image.title": NAME,
                    "org.opencontainers.image.description": "flannel with an eBPF datapath",
                    "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                    "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
                },
            },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
            "history": history,
        })
    }

    fn manifest(&self, config: &Blob) -> Value {
        let layers: Vec<Value> = self.layers.iter().map(|layer| layer.compressed.descriptor(LAYER)).collect();
        json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config.descriptor(CONFIG), "layers": layers })
    }

    /// containerd takes the whole name, others the tag.
    fn index(manifest: &Blob, tag: &str) -> Value {
        let mut descriptor = manifest.descriptor(MANIFEST);
        descriptor["annotations"] = json!({
            "io.containerd.image.name": format!("docker.io/library/{tag}"),
            "org.opencontainers.image.ref.name": env!("CARGO_PKG_VERSION"),
        });
        json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor] })
    }

    fn docker_manifest(&self, config: &Blob, tag: &str) -> Value {
        let layers: Vec<String> = self.layers.iter().map(|layer| layer.compressed.path()).collect();
        json!([{ "Config": config.path(), "RepoTags": [tag], "Layers": layers }])
    }
}
