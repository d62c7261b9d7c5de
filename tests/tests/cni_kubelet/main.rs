//! The CNI plugin as a kubelet's runtime calls it, with the distribution's bridge, host-local and portmap: pods on one
//! node. How they reach other nodes is the agent's.

mod interrupted;
mod lifecycle;
mod many;

use anyhow::Result;
use flannel_tests::{
    Lab,
    cni::{List, Runtime},
};
use serde_json::{Value, json};

/// Where host-local keeps the addresses of the network.
const LEASES: &str = "/var/lib/cni/networks/cbr0";

/// One node with the list that flannel's manifest installs, in another version of the specification if need be.
struct World {
    runtime: Runtime,
    list: List,
    _lab: Lab,
}

impl World {
    fn new(name: &str, version: &str, subnet_env: &str) -> Result<Self> {
        let lab = Lab::new(name)?;
        let runtime = Runtime::new(&lab, "n", Some(subnet_env))?;
        let list = List::new(&runtime, version, plugins())?;
        Ok(Self { runtime, list, _lab: lab })
    }

    /// The addresses that host-local has given, sorted.
    fn leases(&self) -> Vec<String> {
        let files = self.runtime.files(LEASES).into_iter();
        files.filter(|name| !name.starts_with("last_reserved_ip") && name != "lock").collect()
    }

    /// The ports of the bridge, if there is one.
    fn ports(&self) -> Vec<String> {
        self.runtime.files("/sys/class/net/cni0/brif")
    }

    /// Whether nothing of any pod is left.
    fn is_clean(&self) -> Result<()> {
        let (state, leases, ports) = (self.runtime.state(), self.leases(), self.ports());
        anyhow::ensure!(state.is_empty() && leases.is_empty() && ports.is_empty(), "{state:?} {leases:?} {ports:?}");
        let nat = self.runtime.node().sh("iptables -t nat -S")?.stdout;
        anyhow::ensure!(!nat.contains("-j DNAT"), "{nat}");
        Ok(())
    }
}

fn plugins() -> Value {
    json!([
        { "type": "flannel", "delegate": { "hairpinMode": true, "isDefaultGateway": true } },
        { "type": "portmap", "capabilities": { "portMappings": true } }
    ])
}

/// The addresses of a result, without their lengths.
fn addresses(result: &Value) -> Vec<String> {
    let addresses = result["ips"].as_array().into_iter().flatten().filter_map(|ip| ip["address"].as_str());
    addresses.filter_map(|address| Some(address.split_once('/')?.0.to_owned())).collect()
}
