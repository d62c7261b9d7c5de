//! The backend ipip: tunnels of IPv4 in IPv4, by a kernel that has them. These tests run on kernels
//! of Debian, by `cargo xtask test --kernel`.

mod drift;
mod restart;
mod stock;
mod tunnel;

use std::path::Path;

use anyhow::Result;
use flannel_tests::{Node, not_run};
use serde_json::Value;

const DEVICE: &str = "flannel.ipip";
const IPIP: &str = r#"{"Type":"ipip"}"#;
/// The same with plain routes between neighbours.
const DIRECT_ROUTING: &str = r#"{"Type":"ipip","DirectRouting":true}"#;

/// Returns true where the kernel makes no ipip devices, and says so.
fn lacks_ipip(what: &str) -> bool {
    // The directory is there once the module is, and always if it is built in.
    let lacks = !Path::new("/sys/module/ipip").exists();
    if lacks {
        not_run(what, "the module ipip is not loaded");
    }
    lacks
}

/// The kernel's routes of the pod network, of our protocol.
fn routes(node: &Node) -> Result<Vec<Value>> {
    node.json(&[
        "ip",
        "-json",
        "-details",
        "route",
        "show",
        "root",
        "10.244.0.0/16",
        "proto",
        "191",
        "type",
        "unicast",
    ])
}

/// The device as the kernel has it.
fn device(node: &Node) -> Result<Value> {
    let mut devices: Vec<Value> =
        node.json(&["ip", "-json", "-details", "link", "show", DEVICE])?;
    devices
        .pop()
        .ok_or_else(|| anyhow::anyhow!("no device {DEVICE}"))
}
