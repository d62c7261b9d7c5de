//! A node that is configured as stock flannel configures charon agrees with ours.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{cluster::LEASES, eventually};
use serde_json::json;

use super::{
    ADDRESSES, PROGRAMS, PSK, final_state, options, two_nodes, unpacked_library, wait_tunnel,
};

const SUBNET: &str = "10.244.9.0/24";

/// The configuration that stock flannel loads, as swanctl reads it.
fn stock(own: &str) -> String {
    let [ours, theirs] = ADDRESSES;
    format!(
        "connections {{\n stock {{\n  version = 2\n  local_addrs = {theirs}\n  remote_addrs = \
         {ours}\n  \
         proposals = aes256-sha256-modp4096\n  keyingtries = 0\n  local {{\n auth = psk\n }}\n  \
         remote {{\n auth = psk\n }}\n  children {{\n   stock {{\n    local_ts = {SUBNET}\n    \
         remote_ts = {own}\n    esp_proposals = aes128gcm16-sha256-prfsha256-ecp256\n    \
         start_action = none\n    \
         mode = tunnel\n    reqid = 11\n    rekey_time = 1h\n    policies = no\n   }}\n  }}\n \
         }}\n}}\n\
         secrets {{\n ike-1 {{\n id-1 = {ours}\n id-2 = {theirs}\n secret = {PSK}\n }}\n}}\n"
    )
}

#[test]
fn a_peer_with_flannels_settings_agrees_with_ours() -> Result<()> {
    let nodes = two_nodes("ipsec-stock")?;
    let lease = json!({ "PublicIP": ADDRESSES[1], "PublicIPv6": null, "BackendType": "ipsec" });
    nodes.etcd.put(
        &format!("{LEASES}10.244.9.0-24"),
        &lease.to_string(),
        Some(86_400),
    )?;
    let agent = nodes.a.ready_agent(options(&nodes)?)?;
    let own = agent.status()?["lease"]["subnet"]
        .as_str()
        .context("a subnet")?
        .to_owned();

    let b = &nodes.b;
    fs::write(
        b.outside_path("/run/strongswan.conf"),
        "charon {\n plugins {\n vici {\n }\n }\n}\n",
    )?;
    fs::write(b.outside_path("/run/swanctl.conf"), stock(&own))?;
    let charon = [
        "env",
        "STRONGSWAN_CONF=/run/strongswan.conf",
        "/usr/lib/ipsec/charon",
    ];
    let running = b.spawn("charon", charon)?;
    let swanctl = match unpacked_library() {
        Some(library) if !Path::new(PROGRAMS).join("charon").exists() => library
            .with_file_name("sbin")
            .join("swanctl")
            .display()
            .to_string(),
        _ => "swanctl".to_owned(),
    };
    eventually(
        "the stock node's configuration",
        Duration::from_secs(10),
        || {
            b.sh(&format!(
                "env STRONGSWAN_CONF=/run/strongswan.conf {swanctl} --load-all --noprompt --file \
             /run/swanctl.conf"
            ))
            .map(drop)
        },
    )?;
    let tunnel = wait_tunnel(&agent, ADDRESSES[1], final_state(&nodes.a)?)?;
    ensure!(tunnel["since"].is_u64(), "{tunnel}");
    running.signal(nix::sys::signal::Signal::SIGTERM)?;
    Ok(())
}
