//! The chart as a whole: it is the manifest, and its value sets mean what they say.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, ensure};
use flannel_store::config::{ConfigWarning, NetworkConfig};
use serde_json::{Value, json};

use super::{agent_takes, deploy, documents::Documents, helm, manifest, text_of};

/// Prefixes of keys that come from the `helm install` command line, from Helm itself, or from the
/// values: the checksum of the configuration.
const HELMS: [&str; 3] = ["app.kubernetes.io/", "checksum/", "helm.sh/"];

/// Without Helm's labels, and with JSON in texts read.
fn meaning(document: &Value) -> Value {
    match document {
        Value::Object(members) => {
            let own = members
                .iter()
                .filter(|(key, _)| !HELMS.iter().any(|prefix| key.starts_with(prefix)));
            own.map(|(key, value)| (key.clone(), meaning(value)))
                .collect()
        }
        Value::Array(elements) => elements.iter().map(meaning).collect(),
        Value::String(text) if text.starts_with('{') => {
            serde_json::from_str(text).unwrap_or_else(|_| document.clone())
        }
        _ => document.clone(),
    }
}

fn meanings(documents: &BTreeMap<String, Value>) -> BTreeMap<&str, Value> {
    documents
        .iter()
        .map(|(kind, document)| (kind.as_str(), meaning(document)))
        .collect()
}

/// Takes out the labels by which a DaemonSet knows its pods; they have to be on the pods.
fn take_selector(documents: &mut Documents) -> Result<Value> {
    let labels = documents
        .at("DaemonSet", "/spec/template/metadata/labels")?
        .clone();
    let selector = documents
        .0
        .get_mut("DaemonSet")
        .and_then(|set| set.pointer_mut("/spec/selector/matchLabels"));
    let selector = selector.context("a selector")?.take();
    let wanted = selector.as_object().context("labels")?;
    ensure!(
        wanted.iter().all(|(key, value)| labels[key] == *value),
        "{wanted:?} of {labels}"
    );
    Ok(selector)
}

/// The exceptions are the namespace, which is an argument of `helm install`, and the selectors: a
/// DaemonSet's selector is immutable, so each keeps that of the DaemonSet it replaces.
#[test]
fn the_chart_is_the_manifest() -> Result<()> {
    let Some(mut chart) = helm::set("default")? else {
        return Ok(());
    };
    let mut manifest = manifest()?;
    manifest.0.remove("Namespace").context("a namespace")?;
    let (ours, theirs) = (take_selector(&mut chart)?, take_selector(&mut manifest)?);
    ensure!(
        ours == json!({"app": "flannel"}),
        "the chart selects {ours}"
    );
    ensure!(
        theirs == json!({"app": "flannel", "k8s-app": "flannel"}),
        "the manifest selects {theirs}"
    );
    let (chart, manifest) = (meanings(&chart.0), meanings(&manifest.0));
    ensure!(
        chart.keys().eq(manifest.keys()),
        "{:?}, not {:?}",
        chart.keys(),
        manifest.keys()
    );
    for (kind, document) in &manifest {
        ensure!(
            chart[kind] == *document,
            "the chart has {:#}\nwhere the manifest has {document:#}",
            chart[kind]
        );
    }
    Ok(())
}

#[test]
fn helm_has_nothing_against_the_chart() -> Result<()> {
    let Some(output) = helm::lint()? else {
        return Ok(());
    };
    ensure!(output.status.success(), "{}", text_of(&output));
    Ok(())
}

#[test]
fn the_agent_takes_what_the_chart_gives_it() -> Result<()> {
    for set in helm::sets()?.unwrap_or_default() {
        let documents = set.documents()?;
        agent_takes(&documents.flags_of_a_pod()?).context(set.name.clone())?;
        let config = NetworkConfig::parse_assigned(documents.net_conf()?)
            .with_context(|| set.name.clone())?;
        let odd = |warning: &&ConfigWarning| !matches!(warning, ConfigWarning::WindowsOnly { .. });
        let odd: Vec<_> = config.warnings.iter().filter(odd).collect();
        ensure!(odd.is_empty(), "{}: {odd:?}", set.name);
    }
    Ok(())
}

/// The values of `flannel` that its own chart does not have.
fn values_of_ours() -> Result<Vec<String>> {
    let read = |name: &str| -> Result<Value> {
        Ok(serde_saphyr::from_str(&fs::read_to_string(
            deploy("chart/kube-flannel").join(name),
        )?)?)
    };
    let (all, upstream) = (read("values.yaml")?, read("ci/upstream-values.yaml")?);
    let names = all["flannel"].as_object().context("values")?.keys();
    Ok(names
        .filter(|name| upstream["flannel"].get(name).is_none())
        .cloned()
        .collect())
}

#[test]
fn every_value_of_ours_is_explained() -> Result<()> {
    let page = fs::read_to_string(deploy("../docs/install/kubernetes.md"))?;
    let (_, table) = page
        .split_once("| value | becomes |\n|---|---|\n")
        .context("the table of values")?;
    let cells = table
        .lines()
        .map_while(|line| line.strip_prefix("| ")?.split(" | ").next());
    // What has a point is a part of a value of flannel's.
    let named = cells
        .flat_map(|cell| cell.split(", "))
        .map(|name| name.trim_matches('`'));
    let mut named: Vec<_> = named.filter(|name| !name.contains('.')).collect();
    let mut ours = values_of_ours()?;
    named.sort_unstable();
    ours.sort_unstable();
    ensure!(ours == named, "the page has {named:?}, the chart {ours:?}");
    Ok(())
}

/// The first that a user of an old chart or manifest would miss is the image.
#[test]
fn chart_manifest_and_agent_are_of_one_version() -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let chart: Value = serde_saphyr::from_str(&fs::read_to_string(deploy(
        "chart/kube-flannel/Chart.yaml",
    ))?)?;
    ensure!(
        chart["version"] == version && chart["appVersion"] == version,
        "{chart:#}, not {version}"
    );
    let manifest = manifest()?;
    let containers = [
        manifest.pod("/initContainers")?,
        manifest.pod("/containers")?,
    ];
    for container in containers.into_iter().filter_map(Value::as_array).flatten() {
        ensure!(
            container["image"] == format!("flannel-agent:{version}"),
            "{container:#}"
        );
    }
    Ok(())
}
