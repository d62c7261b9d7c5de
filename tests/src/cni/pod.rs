//! A pod as kubelet makes it: a sandbox, and the plugins of a list.

use std::ops::Deref;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{List, Sandbox, addresses};
use crate::{Host, Pod};

/// A pod made by the plugins.
#[derive(Debug)]
pub struct KubePod {
    pod: Pod,
    list: List,
    sandbox: Sandbox,
    mappings: Value,
    result: Value,
}

impl List {
    /// Makes a pod with these port mappings.
    pub fn pod(&self, name: &str, mappings: Value) -> Result<KubePod> {
        let node = self.runtime().node();
        let host = Host::new(node.lab(), &format!("{}-{name}", node.name()))?;
        let sandbox = self.runtime().sandbox_of(&host, name)?;
        let result = self.add(&sandbox, &mappings)?;
        let pod = Pod::made_by_plugins(node, host, name, host_side(&result)?, addresses(&result)?);
        Ok(KubePod {
            pod,
            list: self.clone(),
            sandbox,
            mappings,
            result,
        })
    }
}

impl KubePod {
    /// DEL, and the end of the sandbox.
    pub fn delete(self) -> Result<()> {
        self.list.del(&self.sandbox, &self.mappings, &self.result)?;
        self.list
            .runtime()
            .node()
            .sh(&format!("ip netns delete {}", self.sandbox.id))?;
        self.pod.end()
    }
}

impl Deref for KubePod {
    type Target = Pod;

    fn deref(&self) -> &Pod {
        &self.pod
    }
}

/// The name of the veth's end on the node.
fn host_side(result: &Value) -> Result<String> {
    let interfaces = result["interfaces"].as_array().into_iter().flatten();
    let mut outside =
        interfaces.filter(|interface| interface["sandbox"].as_str().is_none_or(str::is_empty));
    let veth = outside.find_map(|interface| {
        interface["name"]
            .as_str()
            .filter(|name| name.starts_with("veth"))
    });
    Ok(veth
        .with_context(|| format!("a veth in {result}"))?
        .to_owned())
}
