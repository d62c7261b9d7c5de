//! The chart of a release: the archive of `helm package`, and an OCI artefact for registries.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use super::tarball;
use crate::{
    files,
    image::{
        self,
        layout::{Blob, MANIFEST, Store},
    },
    workspace::Workspace,
};

/// The media types of Helm ([Helm's
/// registries](https://helm.sh/docs/topics/registries/#helm-chart-manifest)).
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

const DIRECTORY: &str = "kube-flannel";

/// Makes both.
pub(super) fn make(workspace: &Workspace, dist: &Path) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let charts = workspace.root().join("deploy/chart");
    // Its links lead out of it, so their files are packed.
    let archive = tarball::pack(
        workspace,
        &charts,
        DIRECTORY,
        dist.join(format!("flannel-{version}.tgz")),
    )?;
    let metadata = charts.join(DIRECTORY).join("Chart.yaml");
    let text = fs::read_to_string(&metadata)
        .with_context(|| format!("cannot read {}", metadata.display()))?;
    artefact(
        workspace,
        archive,
        &scalars(&text),
        &dist.join(format!("flannel-{version}.chart.oci.tar")),
    )
}

/// Packs the archive of `helm package` as `helm push` would store it.
fn artefact(
    workspace: &Workspace,
    chart: PathBuf,
    metadata: &Value,
    archive: &Path,
) -> anyhow::Result<()> {
    let dir = workspace.target().join("xtask/chart");
    files::remove(&dir)?;
    let store = Store {
        workspace,
        dir: &dir,
    };
    let content = Blob::of(workspace, chart)?;
    store.add(&content)?;
    let config = store.add_document("config", metadata)?;
    let manifest = Store::manifest(&config.descriptor(CONFIG), &[content.descriptor(CONTENT)]);
    let mut manifest = store
        .add_document("manifest", &manifest)?
        .descriptor(MANIFEST);
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": metadata["version"] });
    store.pack(&Store::index(&[manifest]), &[], archive, image::epoch()?)
}

/// The keys of a chart that have a text, without those of its lists and maps.
fn scalars(chart: &str) -> Value {
    let pairs = chart.lines().filter_map(|line| {
        let (key, value) = line.split_once(": ")?;
        let is_key = key.chars().all(char::is_alphanumeric);
        is_key.then(|| (key.to_owned(), json!(value.trim_matches('"'))))
    });
    Value::Object(pairs.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_the_texts_of_the_chart() {
        let text = include_str!("../../../deploy/chart/kube-flannel/Chart.yaml");
        let metadata = scalars(text);
        assert_eq!(metadata["name"], "flannel");
        assert_eq!(metadata["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(metadata["kubeVersion"], ">=1.19.0-0");
        assert_eq!(metadata.get("annotations"), None);
        assert_eq!(metadata.get("artifacthub.io/category"), None);
    }

    #[test]
    fn the_artefact_is_one_of_helm() {
        let workspace = Workspace::new().expect("the project");
        let dist = std::env::temp_dir().join(format!("xtask-chart-{}", std::process::id()));
        fs::create_dir(&dist).expect("a directory");
        make(&workspace, &dist).expect("both files");
        let version = env!("CARGO_PKG_VERSION");
        let artefact = dist.join(format!("flannel-{version}.chart.oci.tar"));
        let unpacked = dist.join("unpacked");
        fs::create_dir(&unpacked).expect("a directory");
        let mut tar = workspace.command("tar");
        tar.arg("-xf").arg(&artefact).arg("-C").arg(&unpacked);
        assert!(tar.status().expect("tar starts").success());
        let read = |path: &str| fs::read(unpacked.join(path)).expect(path);
        let json = |path: &str| serde_json::from_slice::<Value>(&read(path)).expect(path);
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().expect("a digest");
            format!("blobs/{}", digest.replace(':', "/"))
        };
        let index = json("index.json");
        let manifest = json(&blob(&index["manifests"][0]));
        assert_eq!(manifest["config"]["mediaType"], CONFIG);
        assert_eq!(json(&blob(&manifest["config"]))["name"], "flannel");
        let layer = &manifest["layers"][0];
        assert_eq!(layer["mediaType"], CONTENT);
        let chart = fs::read(dist.join(format!("flannel-{version}.tgz")));
        assert_eq!(read(&blob(layer)), chart.expect("the chart"));
        fs::remove_dir_all(&dist).expect("removed");
    }
}
