//! Archives of the OCI image layout: of an image with its layers, configuration and manifests, as
//! the OCI image specification 1.0 has them, and the manifest of `docker save` for those who read
//! no other; and of other artefacts ([`Store`]).

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
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

const INDEX_FILE: &str = "index.json";
const VERSION_FILE: &str = "oci-layout";
const DOCKER_MANIFEST: &str = "manifest.json";

/// A file of a store, named by its digest.
#[derive(Debug)]
pub(crate) struct Blob {
    file: PathBuf,
    digest: String,
    bytes: u64,
}

impl Blob {
    pub(crate) fn of(workspace: &Workspace, file: PathBuf) -> anyhow::Result<Self> {
        let digest = digest(workspace, &file)?;
        let bytes = fs::metadata(&file)
            .with_context(|| format!("cannot read {}", file.display()))?
            .len();
        Ok(Self {
            file,
            digest,
            bytes,
        })
    }

    pub(crate) fn descriptor(&self, media_type: &str) -> Value {
        json!({
            "mediaType": media_type,
            "digest": format!("sha256:{}", self.digest),
            "size": self.bytes,
        })
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }
}

/// The time that the packing of a layer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Compression {
    /// Half a second for 40 MB: for this machine.
    Fast,
    /// Five seconds, for 3 % less: what others download.
    Small,
}

impl Compression {
    const fn level(self) -> &'static str {
        match self {
            Self::Fast => "-6",
            Self::Small => "-12",
        }
    }
}

/// A part of the image's file system.
#[derive(Debug)]
pub(crate) struct Layer {
    compressed: Blob,
    /// The digest of what was compressed.
    contents: String,
    created_by: &'static str,
}

impl Layer {
    /// Packs a directory.
    pub(crate) fn of(
        workspace: &Workspace,
        tree: &Path,
        created_by: &'static str,
        epoch: u64,
        compression: Compression,
    ) -> anyhow::Result<Self> {
        let archive = tree.with_extension("tar");
        workspace::run(tar(workspace, tree, &archive, epoch).arg("."), "tar")?;
        let contents = digest(workspace, &archive)?;
        workspace::run(
            workspace
                .command("libdeflate-gzip")
                .args([compression.level(), "-f"])
                .arg(&archive),
            "libdeflate-gzip",
        )?;
        let compressed = Blob::of(workspace, tree.with_extension("tar.gz"))?;
        Ok(Self {
            compressed,
            contents,
            created_by,
        })
    }
}

/// The start of a command that packs parts of a directory, in an order and with times and owners
/// that do not depend on this machine.
fn tar(workspace: &Workspace, dir: &Path, archive: &Path, epoch: u64) -> Command {
    let mut tar = workspace.command("tar");
    tar.args([
        "--create",
        "--format=gnu",
        "--sort=name",
        "--numeric-owner",
        &format!("--mtime=@{epoch}"),
    ]);
    tar.args(["--owner=0", "--group=0", "--file"])
        .arg(archive)
        .arg("--directory")
        .arg(dir);
    tar
}

/// The directory of a layout.
#[derive(Debug)]
pub(crate) struct Store<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) dir: &'a Path,
}

impl Store<'_> {
    pub(crate) fn add(&self, blob: &Blob) -> anyhow::Result<()> {
        files::install(&blob.file, &self.dir.join(blob.path()), 0o644)
    }

    /// Adds a document, by way of a file next to the directory.
    pub(crate) fn add_document(&self, name: &str, document: &Value) -> anyhow::Result<Blob> {
        let file = self.dir.with_extension(name);
        files::write(&file, &document.to_string())?;
        let blob = Blob::of(self.workspace, file)?;
        self.add(&blob)?;
        Ok(blob)
    }

    /// The manifest of an artefact, of the descriptors of its parts.
    pub(crate) fn manifest(config: &Value, layers: &[Value]) -> Value {
        json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": layers,
        })
    }

    /// The index of manifests.
    pub(crate) fn index(manifests: &[Value]) -> Value {
        json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests })
    }

    /// Packs the directory, in which `others` are files too.
    pub(crate) fn pack(
        &self,
        index: &Value,
        others: &[&str],
        archive: &Path,
        epoch: u64,
    ) -> anyhow::Result<()> {
        const NAMES: [&str; 3] = ["blobs", INDEX_FILE, VERSION_FILE];
        let version = json!({ "imageLayoutVersion": "1.0.0" });
        files::write(&self.dir.join(INDEX_FILE), &index.to_string())?;
        files::write(&self.dir.join(VERSION_FILE), &version.to_string())?;
        files::make_parent(archive)?;
        let mut tar = tar(self.workspace, self.dir, archive, epoch);
        tar.arg("--mode=a+rX,u+w,go-w").args(NAMES).args(others);
        workspace::run(&mut tar, "tar")
    }
}

/// An image.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    /// Its names with tags, without a registry or with one.
    pub(crate) names: &'a [&'a str],
    /// As Debian and Go call it.
    pub(crate) architecture: &'a str,
    pub(crate) layers: &'a [Layer],
    /// The command and the environment of its containers, and its labels.
    pub(crate) container: Value,
    /// The time of creation, in seconds since 1970.
    pub(crate) epoch: u64,
}

impl Layout<'_> {
    /// Writes the archive, by way of a directory.
    pub(crate) fn write(
        &self,
        workspace: &Workspace,
        dir: &Path,
        archive: &Path,
    ) -> anyhow::Result<()> {
        let store = Store { workspace, dir };
        let config = store.add_document("config", &self.config())?;
        let manifest = store.add_document("manifest", &self.manifest(&config))?;
        let docker = self.docker_manifest(&config);
        files::write(&dir.join(DOCKER_MANIFEST), &docker.to_string())?;
        for layer in self.layers {
            store.add(&layer.compressed)?;
        }
        store.pack(
            &self.index(&manifest),
            &[DOCKER_MANIFEST],
            archive,
            self.epoch,
        )
    }

    fn config(&self) -> Value {
        let diff_ids: Vec<String> = self
            .layers
            .iter()
            .map(|layer| format!("sha256:{}", layer.contents))
            .collect();
        let history: Vec<Value> = self
            .layers
            .iter()
            .map(|layer| json!({ "created_by": layer.created_by }))
            .collect();
        json!({
            "architecture": self.architecture,
            "os": "linux",
            "config": self.container,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
            "history": history,
        })
    }

    fn manifest(&self, config: &Blob) -> Value {
        let layers: Vec<Value> = self
            .layers
            .iter()
            .map(|layer| layer.compressed.descriptor(LAYER))
            .collect();
        Store::manifest(&config.descriptor(CONFIG), &layers)
    }

    /// containerd takes the whole name, others the tag.
    fn index(&self, manifest: &Blob) -> Value {
        let descriptor = |name: &&str| {
            let mut descriptor = manifest.descriptor(MANIFEST);
            descriptor["annotations"] = json!({
                "io.containerd.image.name": whole(name),
                "org.opencontainers.image.ref.name": name.rsplit(':').next(),
            });
            descriptor
        };
        let manifests: Vec<Value> = self.names.iter().map(descriptor).collect();
        Store::index(&manifests)
    }

    fn docker_manifest(&self, config: &Blob) -> Value {
        let layers: Vec<String> = self
            .layers
            .iter()
            .map(|layer| layer.compressed.path())
            .collect();
        json!([{ "Config": config.path(), "RepoTags": self.names, "Layers": layers }])
    }
}

/// The name with the registry that container runtimes put before one without.
fn whole(name: &str) -> String {
    match name.split_once('/') {
        Some((registry, _)) if registry.contains('.') => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_registry_is_one_of_dockers() {
        assert_eq!(
            whole("flannel-agent:0.1.0"),
            "docker.io/library/flannel-agent:0.1.0"
        );
        assert_eq!(whole("a/b:1"), "docker.io/a/b:1");
        assert_eq!(whole("k8s.gcr.io/pause:3.2"), "k8s.gcr.io/pause:3.2");
    }
}
