//! The backend extension: commands of the operator carry the packets between nodes.
//!
//! The commands here make what flannel's own documentation makes by them: a VXLAN device, and for
//! each peer a neighbour, an FDB entry and a route.

mod failing;
mod lost;
mod tunnel;
mod variables;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, Node, eventually};
use serde_json::{Value, json};
use std::time::Duration;

/// The device of the commands.
const DEVICE: &str = "ext0";
/// A line for each run of a command.
const RUNS: &str = "/run/flannel/runs";

/// A script of `sh`, as an array. Our variables are replaced in it before `sh` reads it.
fn script(text: &str) -> Value {
    json!(["sh", "-ec", text])
}

/// The commands of a VXLAN tunnel.
pub(crate) fn vxlan() -> Value {
    json!({
        "Type": "extension",
        "PreStartupCommand": script(&format!(
            "ip link show {DEVICE} >/dev/null 2>&1 || ip link add {DEVICE} mtu 1450 type vxlan id \
             9 dev eth0 dstport 8473 nolearning
             cat /sys/class/net/{DEVICE}/address"
        )),
        "PostStartupCommand": script(&format!(
            "ip addr replace ${{SUBNET%/*}}/32 dev {DEVICE}; ip link set {DEVICE} up"
        )),
        "SubnetAddCommand": script(&format!(
            "read mac; echo add $SUBNET $PUBLIC_IP $mac >> {RUNS}
             ip neigh replace ${{SUBNET%/*}} lladdr $mac nud permanent dev {DEVICE}
             bridge fdb replace $mac dst $PUBLIC_IP self permanent dev {DEVICE}
             ip route replace $SUBNET via ${{SUBNET%/*}} dev {DEVICE} onlink"
        )),
        "SubnetRemoveCommand": script(&format!(
            "read mac; echo remove $SUBNET $PUBLIC_IP $mac >> {RUNS}
             ip route del $SUBNET dev {DEVICE}; ip neigh del ${{SUBNET%/*}} dev {DEVICE}
             bridge fdb del $mac dst $PUBLIC_IP self dev {DEVICE}"
        )),
    })
}

/// The runs of commands on a node so far.
fn runs(node: &Node) -> Result<Vec<String>> {
    Ok(node
        .sh(&format!("cat {RUNS}"))?
        .stdout
        .lines()
        .map(str::to_owned)
        .collect())
}

/// The routes into the device of the commands.
fn routes(node: &Node) -> Result<String> {
    Ok(node.sh(&format!("ip route show dev {DEVICE}"))?.stdout)
}

/// Waits until the status of the commands for peers is this.
fn wait_status(agent: &Agent, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually(what, Duration::from_mins(1), || {
        let status = agent.status()?;
        ensure!(is_so(&status["extension"]), "{}", status["extension"]);
        Ok(status)
    })
}

fn added(agent: &Agent, peers: u64) -> Result<Value> {
    wait_status(agent, &format!("commands for {peers} peers"), |status| {
        status["added"] == peers && status["waiting"] == 0 && status["failing"] == 0
    })
}

/// The subnet of an agent.
fn subnet(agent: &Agent) -> Result<String> {
    Ok(agent.status()?["lease"]["subnet"]
        .as_str()
        .context("a subnet")?
        .to_owned())
}
