//! Peers follow their leases, and stay as they should be.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{cluster::topology::Stack, eventually};

use super::{DEVICES, cluster, key, shown, wait_peers};

const PSK: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";

#[test]
fn secret_keepalive_and_port_are_those_of_the_configuration() -> Result<()> {
    let settings = format!(r#","PSK":"{PSK}","PersistentKeepaliveInterval":25,"ListenPort":4500"#);
    let cluster = cluster("wg-set", Stack::V4, &settings)?;
    let [agent, ..] = &cluster.agents;
    for (field, expected) in [("preshared-keys", PSK), ("persistent-keepalive", "25")] {
        let shown = shown(agent.node(), DEVICES[0], field)?;
        assert_eq!(shown.len(), 2);
        ensure!(
            shown.iter().all(|(_, value)| value == expected),
            "{field}: {shown:?}"
        );
    }
    for (_, endpoint) in shown(agent.node(), DEVICES[0], "endpoints")? {
        ensure!(endpoint.ends_with(":4500"), "{endpoint}");
    }
    // Neither the log nor the status repeats a secret.
    let private = cluster.a.sh("cat /run/flannel/wgkey")?.stdout;
    let output = agent.child().log_tail(1_000) + &agent.status()?.to_string();
    ensure!(
        !output.contains(PSK) && !output.contains(private.trim()),
        "a secret in {output}"
    );
    assert_eq!(
        cluster.a.sh("stat -c %a /run/flannel/wgkey")?.stdout.trim(),
        "400"
    );
    Ok(())
}

#[test]
fn a_peer_that_another_process_removes_or_changes_is_restored_and_a_stranger_removed() -> Result<()>
{
    let cluster = cluster("wg-drift", Stack::V4, "")?;
    let [agent, b, c] = &cluster.agents;
    let (b, c) = (key(b)?, key(c)?);
    let stranger = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    cluster
        .a
        .sh(&format!("wg set {} peer {b} remove", DEVICES[0]))?;
    cluster.a.sh(&format!(
        "wg set {} peer {c} allowed-ips 10.99.0.0/24",
        DEVICES[0]
    ))?;
    cluster.a.sh(&format!(
        "wg set {} peer {stranger} allowed-ips 10.98.0.0/24",
        DEVICES[0]
    ))?;
    wait_peers(agent, DEVICES[0], &[&b, &c])?;
    let allowed = shown(agent.node(), DEVICES[0], "allowed-ips")?;
    ensure!(
        allowed
            .iter()
            .all(|(_, prefix)| prefix.starts_with("10.244.")),
        "{allowed:?}"
    );
    cluster.wait_connected()?;
    let repairs = agent.status()?["repairs"]["wireguard"]
        .as_u64()
        .context("repairs")?;
    ensure!(repairs >= 2, "{repairs} repairs");
    Ok(())
}

#[test]
fn a_node_with_a_new_key_takes_the_place_of_the_former() -> Result<()> {
    let cluster = cluster("wg-newkey", Stack::V4, "")?;
    let [a, b, c] = &cluster.agents;
    let former = key(b)?;
    b.sigterm_and_wait()?;
    cluster.b.sh("rm /run/flannel/wgkey")?;
    b.restart()?;
    b.wait_ready()?;
    let (new, third) = (key(b)?, key(c)?);
    ensure!(new != former, "the same key");
    wait_peers(a, DEVICES[0], &[&new, &third])?;
    cluster.wait_connected()
}

#[test]
fn a_device_that_is_gone_is_made_again_with_all_its_peers() -> Result<()> {
    let cluster = cluster("wg-gone", Stack::V4, "")?;
    let [a, b, c] = &cluster.agents;
    cluster.a.sh(&format!("ip link delete {}", DEVICES[0]))?;
    eventually("the device", Duration::from_mins(1), || {
        cluster
            .a
            .sh(&format!("wg show {} listen-port", DEVICES[0]))
            .map(drop)
    })?;
    wait_peers(a, DEVICES[0], &[&key(b)?, &key(c)?])?;
    cluster.wait_connected()
}
