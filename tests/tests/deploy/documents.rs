//! The documents of a manifest, as data.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use flannel_tests::kubernetes::helm;
use serde_json::Value;

/// By kind, those of another name than the others of their kind by kind and name.
#[derive(Debug)]
pub(crate) struct Documents(pub(crate) BTreeMap<String, Value>);

impl Documents {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&helm::without_tests(text)).context("YAML")?;
        let count = documents.len();
        let by_kind: BTreeMap<_, _> = documents
            .into_iter()
            .map(|document| (key_of(&document), document))
            .collect();
        anyhow::ensure!(
            by_kind.len() == count,
            "{count} documents, {:?}",
            by_kind.keys()
        );
        Ok(Self(by_kind))
    }

    /// Returns the value at a JSON pointer in the document of a kind.
    pub(crate) fn at(&self, kind: &str, pointer: &str) -> Result<&Value> {
        let document = self.0.get(kind).with_context(|| format!("no {kind}"))?;
        document
            .pointer(pointer)
            .with_context(|| format!("no {pointer} in {document:#}"))
    }

    /// A part of the pods' specification.
    pub(crate) fn pod(&self, pointer: &str) -> Result<&Value> {
        self.at("DaemonSet", &format!("/spec/template/spec{pointer}"))
    }

    /// The network configuration, as text.
    pub(crate) fn net_conf(&self) -> Result<&str> {
        self.at("ConfigMap", "/data/net-conf.json")?
            .as_str()
            .context("a text")
    }

    /// The flags of the agent.
    pub(crate) fn flags(&self) -> Result<Vec<String>> {
        Ok(serde_json::from_value(
            self.pod("/containers/0/args")?.clone(),
        )?)
    }

    /// The same with the variables that Kubernetes puts in.
    pub(crate) fn flags_of_a_pod(&self) -> Result<Vec<String>> {
        Ok(self
            .flags()?
            .iter()
            .map(|flag| flag.replace("$(POD_IP)", "192.0.2.1"))
            .collect())
    }

    /// The names of all containers, those that go before first.
    pub(crate) fn containers(&self) -> Result<Vec<&str>> {
        let all = [self.pod("/initContainers")?, self.pod("/containers")?];
        let names = all
            .into_iter()
            .filter_map(Value::as_array)
            .flatten()
            .map(|container| container["name"].as_str());
        names.collect::<Option<_>>().context("names")
    }
}

fn key_of(document: &Value) -> String {
    let kind = document["kind"].as_str().unwrap_or_default();
    match document["metadata"]["name"].as_str() {
        Some(name @ "kube-flannel-dashboard") => format!("{kind}/{name}"),
        _ => kind.to_owned(),
    }
}
