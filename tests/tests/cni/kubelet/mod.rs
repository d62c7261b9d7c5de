//! The CNI plugin as a kubelet's runtime calls it, with the distribution's bridge, host-local and
//! portmap: pods on one node. How they reach other nodes is the agent's.

mod habits;
mod interrupted;
mod lifecycle;
mod many;
mod sequences;

use anyhow::Result;
use flannel_tests::{
    Lab,
    cni::{self, List, Runtime},
};
use serde_json::Value;

/// One node with the list that flannel's manifest installs, in another version of the specification
/// if need be.
struct World {
    runtime: Runtime,
    list: List,
    _lab: Lab,
}

impl World {
    fn new(name: &str, version: &str, subnet_env: &str) -> Result<Self> {
        let lab = Lab::new(name)?;
        let runtime = Runtime::new(&lab, "n", Some(subnet_env))?;
        let list = List::new(&runtime, version, cni::shipped()?["plugins"].clone())?;
        Ok(Self {
            runtime,
            list,
            _lab: lab,
        })
    }
}

/// The addresses of a result, as host-local's files are named.
fn addresses(result: &Value) -> Vec<String> {
    cni::addresses(result)
        .into_iter()
        .flatten()
        .map(|address| address.to_string())
        .collect()
}
