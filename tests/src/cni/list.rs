//! A configuration list and what a runtime does with it.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Runtime, Sandbox};

/// For one call among a hundred on a busy machine.
const LIMIT: Duration = Duration::from_mins(2);
/// The manifest that installs the list on the nodes of a cluster.
const MANIFEST: &str = include_str!("../../../deploy/kube-flannel.yml");

/// The list that the manifest installs.
pub fn shipped() -> Result<Value> {
    let block = MANIFEST
        .lines()
        .skip_while(|line| line.trim() != "cni-conf.json: |")
        .skip(1);
    let text: Vec<_> = block.take_while(|line| line.starts_with("    ")).collect();
    serde_json::from_str(&text.join("\n")).context("cni-conf.json in the manifest")
}

/// The addresses of a result.
pub fn addresses(result: &Value) -> Result<Vec<IpAddr>> {
    let all = result["ips"]
        .as_array()
        .with_context(|| format!("a result without addresses: {result}"))?;
    let address = |ip: &Value| ip["address"].as_str()?.split_once('/')?.0.parse().ok();
    all.iter()
        .map(|ip| address(ip).with_context(|| format!("no address: {ip}")))
        .collect()
}

/// A configuration list and what a runtime does with it.
#[derive(Clone, Debug)]
pub struct List {
    runtime: Runtime,
    name: String,
    version: String,
    plugins: Vec<Value>,
}

impl List {
    /// The list of the manifest on one node.
    pub fn shipped(runtime: &Runtime) -> Result<Self> {
        let list = shipped()?;
        let version = list["cniVersion"].as_str().context("a version")?;
        Self::new(runtime, version, list["plugins"].clone())
    }

    /// The node's runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// A list on one node. `plugins` need neither `name` nor `cniVersion`.
    pub fn new(runtime: &Runtime, version: &str, plugins: Value) -> Result<Self> {
        let Value::Array(plugins) = plugins else {
            anyhow::bail!("a list of plugins: {plugins}")
        };
        Ok(Self {
            runtime: runtime.clone(),
            name: "cbr0".to_owned(),
            version: version.to_owned(),
            plugins,
        })
    }

    /// ADD of all plugins: the last one's result. `port_mappings` goes to those that have the
    /// capability.
    pub fn add(&self, sandbox: &Sandbox, port_mappings: &Value) -> Result<Value> {
        let mut result = Value::Null;
        for plugin in &self.plugins {
            let output = self.call("ADD", plugin, sandbox, port_mappings, &result)?;
            result =
                serde_json::from_str(&output).with_context(|| format!("{plugin}: {output}"))?;
        }
        Ok(result)
    }

    /// CHECK of all plugins.
    pub fn check(&self, sandbox: &Sandbox, port_mappings: &Value, result: &Value) -> Result<()> {
        let mut plugins = self.plugins.iter();
        plugins.try_for_each(|plugin| {
            self.call("CHECK", plugin, sandbox, port_mappings, result)
                .map(drop)
        })
    }

    /// DEL of all plugins, from the last to the first.
    pub fn del(&self, sandbox: &Sandbox, port_mappings: &Value, result: &Value) -> Result<()> {
        let mut plugins = self.plugins.iter().rev();
        plugins.try_for_each(|plugin| {
            self.call("DEL", plugin, sandbox, port_mappings, result)
                .map(drop)
        })
    }

    /// Returns the network configuration that a plugin of the list gets.
    pub fn conf(&self, plugin: &Value, port_mappings: &Value, result: &Value) -> Value {
        let mut conf = plugin.clone();
        conf["name"] = json!(self.name);
        conf["cniVersion"] = json!(self.version);
        if plugin["capabilities"]["portMappings"] == true && !port_mappings.is_null() {
            conf["runtimeConfig"] = json!({ "portMappings": port_mappings });
        }
        if !result.is_null() {
            conf["prevResult"] = result.clone();
        }
        conf
    }

    fn call(
        &self,
        verb: &str,
        plugin: &Value,
        sandbox: &Sandbox,
        mappings: &Value,
        result: &Value,
    ) -> Result<String> {
        let name = plugin["type"].as_str().context("a plugin's type")?;
        let conf = self.conf(plugin, mappings, result);
        let output = self
            .runtime
            .command(name, verb, Some(sandbox), &conf)
            .limit(LIMIT)
            .run()?;
        ensure!(
            output.code == 0,
            "{verb} of {name} for {}: {output:?}",
            sandbox.id
        );
        Ok(output.stdout)
    }
}
