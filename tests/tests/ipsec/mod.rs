//! The backend ipsec: policies of the kernel, and charon of strongSwan, which agrees on keys.
//!
//! On a kernel without ESP the nodes agree with each other (IKE_SA) and the kernel refuses the
//! associations: what that shows is tested everywhere, packets only where the kernel has ESP.

mod change;
mod packets;
mod policies;
mod process;
mod secret;
mod start;
mod stock;

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, AgentOptions, Confinement, Node, TwoNodes,
    cluster::{self, topology::Stack},
    eventually,
};
use serde_json::Value;

/// A secret of the least length.
const PSK: &str = "hunter2-0123456789abcdef0123456789abcdef0123456789abcdef\
    0123456789abcdef0123456789abcdef01234567";
/// charon, and what it loads.
const PROGRAMS: &str = "/usr/lib/ipsec";
const ADDRESSES: [&str; 2] = ["192.168.1.11", "192.168.1.12"];

fn config(psk: &str) -> String {
    cluster::config(Stack::V4, &format!(r#"{{"Type":"ipsec","PSK":"{psk}"}}"#))
}

/// Two nodes with charon, and no agents yet.
fn two_nodes(name: &str) -> Result<TwoNodes> {
    two_nodes_with(name, &config(PSK))
}

fn two_nodes_with(name: &str, config: &str) -> Result<TwoNodes> {
    let nodes = TwoNodes::with(name, Stack::V4, config)?;
    for node in [&nodes.a, &nodes.b] {
        bring_charon(node)?;
    }
    Ok(nodes)
}

/// The usual agent with the capability that charon needs in addition.
fn options(nodes: &TwoNodes) -> Result<AgentOptions> {
    Ok(nodes
        .options()?
        .confined_by(Confinement::of_the_manifest()?.with("net_bind_service")))
}

/// Agents on both nodes, ready and with a peer each.
fn agents(nodes: &TwoNodes) -> Result<[Agent; 2]> {
    let start = |node: &Node| node.agent(options(nodes)?);
    let agents = [start(&nodes.a)?, start(&nodes.b)?];
    for agent in &agents {
        agent.wait_ready()?;
        agent.wait_peers(1)?;
    }
    Ok(agents)
}

/// Puts strongSwan where its package does: it is not installed, because it would start a service.
fn bring_charon(node: &Node) -> Result<()> {
    if Path::new(PROGRAMS).join("charon").exists() {
        return Ok(());
    }
    let library =
        unpacked_library().context("no charon: `cargo xtask setup` unpacks strongSwan")?;
    let layers = format!("{}:/usr/lib", library.display());
    node.sh(&format!(
        "mount -t overlay charon -o lowerdir={layers} /usr/lib"
    ))
    .map(drop)
}

/// `usr/lib` next to the `usr/bin` that the search path has for unpacked tools.
fn unpacked_library() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let libraries = env::split_paths(&path).filter_map(|dir| Some(dir.parent()?.join("lib")));
    libraries
        .into_iter()
        .find(|library| library.join("ipsec/charon").exists())
}

/// Returns true if the kernel has ESP. Without it the algorithms are found and ESP is not.
fn has_esp(node: &Node) -> Result<bool> {
    let association = "src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x99";
    let keys = format!(
        "enc cbc(aes) 0x{} auth hmac(sha256) 0x{}",
        "00".repeat(16),
        "00".repeat(32)
    );
    match node.sh(&format!(
        "ip xfrm state add {association} mode tunnel reqid 99 {keys}"
    )) {
        Ok(_) => node
            .sh(&format!("ip xfrm state delete {association}"))
            .map(|_| true),
        // EPROTONOSUPPORT, in the kernel's words or in those of ip.
        Err(error)
            if ["type not found", "Protocol not supported"]
                .iter()
                .any(|said| format!("{error:#}").contains(said)) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The state that the tunnel to a peer ends in, by what the kernel has.
fn final_state(node: &Node) -> Result<&'static str> {
    Ok(if has_esp(node)? {
        "installed"
    } else {
        "established"
    })
}

/// The tunnel of an agent to its peer.
fn tunnel(agent: &Agent, address: &str) -> Result<Value> {
    let peer = agent.peer_status(address)?;
    ensure!(peer["ipsec"].is_object(), "no tunnel: {peer}");
    Ok(peer["ipsec"].clone())
}

/// Waits until the nodes know each other.
fn wait_tunnel(agent: &Agent, address: &str, state: &str) -> Result<Value> {
    eventually(
        &format!("a tunnel to {address}: {state}"),
        Duration::from_secs(40),
        || {
            let tunnel = tunnel(agent, address)?;
            ensure!(tunnel["state"] == state, "{tunnel}");
            Ok(tunnel)
        },
    )
}

/// The process id of charon.
fn pid(agent: &Agent) -> Result<u64> {
    let status = agent.status()?;
    status["ipsec"]["pid"]
        .as_u64()
        .with_context(|| format!("charon: {}", status["ipsec"]))
}

/// The policies of a node, one per line.
fn policies(node: &Node) -> Result<Vec<String>> {
    let text = node.sh("ip xfrm policy")?.stdout;
    let mut policies: Vec<String> = Vec::new();
    for line in text.lines() {
        match policies.last_mut() {
            Some(policy) if line.starts_with(char::is_whitespace) => {
                policy.push(' ');
                policy.push_str(line.trim());
            }
            _ => policies.push(line.trim().to_owned()),
        }
    }
    // Those of charon's own sockets.
    policies.retain(|policy| !policy.contains("socket "));
    policies.sort();
    Ok(policies)
}
