//! The other ways to install the image: our chart, and flannel's own manifest with nothing changed
//! but the image; and stock flannel in its place.

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    eventually,
    kubernetes::{Kubernetes, PODS_V6, Parts, flannel, helm, items},
};
use serde_json::Value;

use super::{paths, traffic::Traffic};

const OUR_IMAGE: &str = "flannel-agent:0.1.0";

/// The directory of flannel's files.
///
/// # Errors
/// The reason why there is none.
pub(crate) fn upstream() -> Result<PathBuf, String> {
    let named = env::var_os("FLANNEL_UPSTREAM").map(PathBuf::from);
    named.ok_or_else(|| "FLANNEL_UPSTREAM names no directory of flannel's files".to_owned())
}

/// The archives of stock flannel's images, by the names that its manifest has, as `docker save` or
/// `ctr images export` writes them.
///
/// # Errors
/// The reason why there are none.
pub(crate) fn stock_images() -> Result<Vec<PathBuf>, String> {
    let named = env::var_os("FLANNEL_STOCK_IMAGES").map(PathBuf::from);
    let directory = named.ok_or_else(|| {
        "FLANNEL_STOCK_IMAGES names no directory of stock flannel's images".to_owned()
    })?;
    let entries =
        fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .collect())
}

/// Returns an error with the reason where no chart can be rendered.
pub(crate) fn charts() -> Result<(), String> {
    match helm::run(&["version".into()]) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(helm::MISSING.to_owned()),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// Returns the manifest with only the images changed.
fn with_our_image(manifest: &Path) -> Result<String> {
    let text = fs::read_to_string(manifest).with_context(|| manifest.display().to_string())?;
    let lines: Vec<String> = text
        .lines()
        .map(|line| match line.split_once("image: ") {
            Some((start, _)) => format!("{start}image: {OUR_IMAGE}"),
            None => line.to_owned(),
        })
        .collect();
    ensure!(
        lines.iter().any(|line| line.ends_with(OUR_IMAGE)),
        "no image in {}",
        manifest.display()
    );
    Ok(lines.join("\n"))
}

/// The objects of a chart with these values.
fn rendered(chart: PathBuf, values: &str) -> Result<String> {
    Ok(helm::without_tests(&template(chart, values)?))
}

fn template(chart: PathBuf, values: &str) -> Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(&file, values)?;
    let output = helm::template(chart, Some(file.path().into()))?.context(helm::MISSING)?;
    ensure!(
        output.status.success(),
        "helm: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Manifests and charts select their pods by other labels, and those of a DaemonSet cannot be
/// changed. So the pods stay, get the labels of all, and are taken over, as documents describe it.
fn replace(cluster: &Kubernetes, manifest: &str) -> Result<()> {
    let kubectl = cluster.kubectl();
    let namespace = format!("--namespace={}", flannel::NAMESPACE);
    let label = [
        "label",
        "pods",
        &namespace,
        "--selector",
        flannel::LABEL,
        "k8s-app=flannel",
        "--overwrite",
    ];
    kubectl.run(label)?;
    kubectl.delete([&namespace, flannel::SET, "--cascade=orphan"])?;
    // Both have generation 1: without the restart the pods count as up to date.
    cluster.reinstall(manifest)?;
    expect_pods_of_the_template(cluster)
}

/// All pods have the containers that the DaemonSet describes, and none of the one before.
fn expect_pods_of_the_template(cluster: &Kubernetes) -> Result<()> {
    let kubectl = cluster.kubectl();
    let namespace = format!("--namespace={}", flannel::NAMESPACE);
    let set = kubectl.get([&namespace, flannel::SET])?;
    let parts = |spec: &Value| {
        let container = &spec["containers"][0];
        [
            container["image"].clone(),
            container["command"].clone(),
            container["args"].clone(),
        ]
    };
    let wanted = parts(&set["spec"]["template"]["spec"]);
    let pods = kubectl.get(["pods", &namespace, "--selector", flannel::LABEL])?;
    ensure!(items(&pods).count() == cluster.nodes.len(), "{pods:#}");
    for pod in items(&pods) {
        let found = parts(&pod["spec"]);
        ensure!(
            found == wanted,
            "{} has {found:?}, not {wanted:?}",
            pod["metadata"]["name"]
        );
    }
    Ok(())
}

/// Pods talk with this in place of our manifest, which then is back.
fn serves(cluster: &Kubernetes, manifest: &str) -> Result<()> {
    replace(cluster, manifest)?;
    paths::every_pod_and_node_reaches_every_pod_and_service(cluster)?;
    replace(cluster, &flannel::manifest()?)?;
    paths::the_agents_are_in_mode_fast(cluster)
}

/// As `helm test` does it: its objects are made, and its pod has to succeed.
pub(crate) fn the_test_of_the_chart_passes(cluster: &Kubernetes) -> Result<()> {
    let kubectl = cluster.kubectl();
    let objects = helm::tests(&template(helm::chart(), "{}")?);
    kubectl.apply(&objects)?;
    let namespace = format!("--namespace={}", flannel::NAMESPACE);
    let ended = eventually("the end of the test's pod", Duration::from_mins(5), || {
        let pod = kubectl.get(["pod", &namespace, "flannel-connectivity-test"])?;
        let phase = pod["status"]["phase"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        ensure!(["Succeeded", "Failed"].contains(&phase.as_str()), "{phase}");
        Ok(phase)
    })?;
    let said = kubectl.run(["logs", &namespace, "flannel-connectivity-test"])?;
    ensure!(
        ended == "Succeeded" && said.contains(" passed\n"),
        "{ended}: {said}"
    );
    kubectl.delete_manifests(&objects)
}

pub(crate) fn pods_talk_by_our_chart(cluster: &Kubernetes) -> Result<()> {
    serves(cluster, &rendered(helm::chart(), "{}")?)
}

/// A value in the ConfigMap alone changes a checksum in the pods, which are replaced therefore.
pub(crate) fn another_mode_by_the_chart_rolls_the_pods(cluster: &Kubernetes) -> Result<()> {
    replace(cluster, &rendered(helm::chart(), "{}")?)?;
    paths::the_agents_are_in_mode_fast(cluster)?;
    cluster.roll_out(&rendered(helm::chart(), "flannel: {datapath: kernel}")?)?;
    paths::the_agents_are_in_mode(cluster, "kernel")?;
    replace(cluster, &flannel::manifest()?)?;
    paths::the_agents_are_in_mode_fast(cluster)
}

/// With the device that its process needs, and no more privileges than any backend has.
pub(crate) fn pods_talk_by_our_chart_with_the_backend_udp(cluster: &Kubernetes) -> Result<()> {
    serves(
        cluster,
        &rendered(helm::chart(), "flannel: {backend: udp}")?,
    )
}

pub(crate) fn pods_talk_by_flannels_own_manifest_with_our_image(
    cluster: &Kubernetes,
) -> Result<()> {
    let upstream = upstream().map_err(anyhow::Error::msg)?;
    serves(
        cluster,
        &with_our_image(&upstream.join("Documentation/kube-flannel.yml"))?,
    )
}

pub(crate) fn pods_talk_by_flannels_own_chart_with_our_image(cluster: &Kubernetes) -> Result<()> {
    let upstream = upstream().map_err(anyhow::Error::msg)?;
    let image = "{repository: flannel-agent, tag: 0.1.0}";
    let values = format!("flannel: {{image: {image}, flannel_cni: {{image: {image}}}}}");
    serves(
        cluster,
        &rendered(upstream.join("chart/kube-flannel"), &values)?,
    )
}

/// The steps of the migration guide, both ways: stock flannel takes the places of the agents, node
/// by node, and they take them back.
pub(crate) fn stock_flannel_comes_and_goes_under_traffic(cluster: &Kubernetes) -> Result<()> {
    let (upstream, archives) = (
        upstream().map_err(anyhow::Error::msg)?,
        stock_images().map_err(anyhow::Error::msg)?,
    );
    let parts = Parts::find().map_err(anyhow::Error::msg)?;
    for node in &cluster.nodes {
        archives
            .iter()
            .try_for_each(|archive| node.import(&parts, archive))?;
    }
    let path = upstream.join("Documentation/kube-flannel.yml");
    let stock = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    // Flannel 0.20 refuses a node with subnets of both families without it.
    let network = format!(r#""IPv6Network": "{PODS_V6}", "Network":"#);
    let stock = stock.replacen(r#""Network":"#, &network, 1);
    let traffic = Traffic::start(cluster)?;
    cluster.set_mode("kernel")?;
    cluster.nodes.iter().try_for_each(|node| {
        cluster
            .agent(node.name(), &["guard", "set", "off"])
            .map(drop)
    })?;
    replace(cluster, &stock)?;
    paths::every_pod_and_node_reaches_every_pod_and_service(cluster)?;
    replace(cluster, &flannel::manifest()?)?;
    traffic.expect_complete()?;
    cluster.set_mode("auto")?;
    cluster.nodes.iter().try_for_each(|node| {
        cluster
            .agent(node.name(), &["guard", "set", "auto"])
            .map(drop)
    })?;
    paths::the_agents_are_in_mode_fast(cluster)
}
