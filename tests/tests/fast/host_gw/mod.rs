//! Mode `fast` with the backend host-gw: flows between nodes of one link are replayed without a
//! tunnel, and in every other mode the node is as stock flannel leaves it.

mod alone;
mod flows;
mod leaves;
mod switches;

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent, eventually,
    kernel::hooks::{Side, programs},
};
use serde_json::{Value, json};

/// The programs on the external interface of a node in mode `fast`: on ingress, and on egress.
const FOLLOWED: [&str; 2] = ["from_underlay", "to_underlay"];

/// Returns the names of all programs on the external interface, regardless of owner and attach
/// type.
fn on_external(agent: &Agent) -> Result<Vec<String>> {
    let node = agent.node();
    Ok([
        programs(node, "eth0", Side::Ingress)?,
        programs(node, "eth0", Side::Egress)?,
    ]
    .concat())
}

/// Asks for a mode, and waits until the mode `effective` is active, for this reason or without one
/// (`None`).
fn ask(agent: &Agent, wanted: &str, effective: &str, reason: Option<&str>) -> Result<()> {
    agent.cli(&["datapath", "set", wanted])?;
    let expected = json!([wanted, effective]);
    eventually(
        &format!("{effective} where {wanted} is asked for"),
        Duration::from_secs(10),
        || {
            let mode = agent.status()?["mode"].clone();
            let why = match (&mode["reason"], reason) {
                (Value::String(said), Some(reason)) => said.contains(reason),
                (said, reason) => said.is_null() && reason.is_none(),
            };
            ensure!(
                json!([mode["wanted"], mode["effective"]]) == expected && why,
                "{mode}"
            );
            Ok(())
        },
    )
}
