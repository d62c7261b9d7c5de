//! Leases of other nodes.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    StockNode, TunnelState, TwoNodes,
    cluster::{LEASES, VXLAN},
};
use serde_json::Value;

const OWN_IP: &str = "192.168.1.11";
const FREE_IP: &str = "192.168.1.99";
const FREE_MAC: &str = "02:00:00:00:00:99";

/// A lease that must be refused: key name, value, and a part of the reason.
type Bad = (String, String, String);

fn with_value(name: &str, value: &str, reason: &str) -> Bad {
    (name.to_owned(), value.to_owned(), reason.to_owned())
}

fn lease(name: &str, public_ip: &str, mac: &str, reason: &str) -> Bad {
    let lease = StockNode::named(name, public_ip, mac);
    (name.to_owned(), lease.value(), reason.to_owned())
}

/// Returns leases that are wrong for every node.
fn malformed() -> Vec<Bad> {
    [malformed_values(), malformed_addresses()].concat()
}

/// Keys and values that are not leases of this backend.
fn malformed_values() -> Vec<Bad> {
    let vxlan = |number: u8| StockNode::vxlan(number, FREE_IP, FREE_MAC).value();
    vec![
        with_value(
            "nonsense",
            &vxlan(1),
            "malformed key: \"nonsense\" is not of the form 10.5.34.0-24",
        ),
        with_value(
            "10.244.200.7-24",
            &vxlan(1),
            "has host bits set; name the first address of the subnet",
        ),
        with_value(
            "10.244.201.0-24",
            "{",
            "malformed value: the value is not a JSON object",
        ),
        with_value(
            "10.244.202.0-24",
            r#"{"PublicIP":"here"}"#,
            "PublicIP is \"here\", expected an IPv4 address",
        ),
        with_value(
            "10.244.203.0-24",
            r#"{"PublicIP":"192.168.1.99","BackendType":"vxlan"}"#,
            "it has no backend data",
        ),
        with_value(
            "10.244.204.0-24",
            &vxlan(1).replace("vxlan", "host-gw"),
            "its backend is \"host-gw\", ours is \"vxlan\"",
        ),
        with_value(
            "10.244.205.0-24",
            r#"{"PublicIP":"0.0.0.0","BackendType":"vxlan"}"#,
            "it has no public address",
        ),
    ]
}

/// Leases with an address or a subnet that no node can have.
fn malformed_addresses() -> Vec<Bad> {
    vec![
        lease(
            "10.244.206.0-24",
            FREE_IP,
            "zz",
            "VtepMAC is \"zz\", expected a MAC address",
        ),
        lease(
            "10.244.207.0-24",
            FREE_IP,
            "01:00:5e:00:00:01",
            "its VTEP MAC 01:00:5e:00:00:01 is not a unicast address",
        ),
        lease(
            "10.244.208.0-24",
            "224.0.0.1",
            FREE_MAC,
            "its public address 224.0.0.1 is not a unicast address",
        ),
        lease(
            "10.9.0.0-24",
            FREE_IP,
            FREE_MAC,
            "its subnet 10.9.0.0/24 is not in the network 10.244.0.0/16",
        ),
        lease(
            "10.0.0.0-8",
            FREE_IP,
            FREE_MAC,
            "its subnet 10.0.0.0/8 is not in the network 10.244.0.0/16",
        ),
    ]
}

/// Returns leases that are wrong because they conflict with ours or with that of an older peer.
fn in_conflict(ours: &Value, peer: &Value) -> Result<Vec<Bad>> {
    let half = |subnet: &Value| -> Result<String> {
        Ok(subnet.as_str().context("a subnet")?.replace("/24", "-25"))
    };
    Ok(vec![
        lease(
            &half(&ours["lease"]["subnet"])?,
            FREE_IP,
            FREE_MAC,
            "overlaps ours",
        ),
        lease(
            &half(&peer["lease"]["subnet"])?,
            FREE_IP,
            FREE_MAC,
            "overlaps that of the older lease",
        ),
        lease(
            "10.244.210.0-24",
            OWN_IP,
            FREE_MAC,
            "its public address 192.168.1.11 is ours",
        ),
    ])
}

fn rejected(status: &Value) -> BTreeMap<&str, &str> {
    let rows = status["rejected"].as_array().map_or(&[][..], Vec::as_slice);
    rows.iter()
        .filter_map(|row| Some((row["key"].as_str()?, row["reason"].as_str()?)))
        .collect()
}

#[test]
fn every_bad_lease_is_refused_alone_with_its_key_and_reason() -> Result<()> {
    let pair = TwoNodes::new("leases", VXLAN)?;
    let [a, b] = pair.agents()?;
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    near.ping(far.ip())?;
    let before = (
        TunnelState::of(&pair.a)?,
        a.cli_json(&["maps", "dump", "peers", "-o", "json"])?["peers"].clone(),
    );

    let mut bad = malformed();
    bad.extend(in_conflict(&a.status()?, &b.status()?)?);
    for (name, value, _) in &bad {
        pair.etcd.put(&format!("{LEASES}{name}"), value, None)?;
    }
    let status = a.wait_status("the refused leases", |status| {
        ensure!(rejected(status).len() == bad.len());
        Ok(())
    })?;
    for (name, _, reason) in &bad {
        let reported = rejected(&status)
            .get(name.as_str())
            .copied()
            .unwrap_or_default();
        assert!(
            reported.contains(name) && reported.contains(reason),
            "{name}: {reason:?} in {reported:?}"
        );
    }
    assert_eq!(status["ready"], true, "{status}");
    assert_eq!(
        status["peers"].as_array().map(Vec::len),
        Some(1),
        "{status}"
    );

    assert_eq!(
        before.0.changes(&TunnelState::of(&pair.a)?),
        "",
        "nothing of a refused lease reaches the kernel"
    );
    let keys = |peers: &Value| -> Vec<(String, String)> {
        let rows = peers.as_array().map_or(&[][..], Vec::as_slice);
        rows.iter()
            .map(|row| (row["subnet"].to_string(), row["vtep"].to_string()))
            .collect()
    };
    let after = a.cli_json(&["maps", "dump", "peers", "-o", "json"])?["peers"].clone();
    assert_eq!(keys(&before.1), keys(&after), "nor the peer map");
    near.ping(far.ip())?;

    for (name, ..) in &bad {
        pair.etcd.delete(&format!("{LEASES}{name}"))?;
    }
    a.wait_status("no refused lease", |status| {
        ensure!(rejected(status).is_empty());
        Ok(())
    })?;
    Ok(())
}

/// Other nodes may accept such a lease until the agent renews its own.
#[test]
fn a_lease_with_our_mac_is_refused() -> Result<()> {
    let pair = TwoNodes::new("ourmac", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    let before = TunnelState::of(&pair.a)?;
    let status = agent.status()?;
    let mac = status["device"]["mac"].as_str().context("a MAC")?;
    StockNode::vxlan(211, FREE_IP, mac).put(&pair.etcd)?;
    let status = agent.wait_status("the refused lease", |status| {
        ensure!(rejected(status).len() == 1);
        Ok(())
    })?;
    assert!(
        rejected(&status)["10.244.211.0-24"].contains(&format!("its VTEP MAC {mac} is ours")),
        "{status}"
    );
    assert_eq!(before.changes(&TunnelState::of(&pair.a)?), "");
    Ok(())
}

/// When the reason for its rejection is removed, a lease is accepted without a restart.
#[test]
fn a_bad_lease_that_is_corrected_becomes_a_peer() -> Result<()> {
    let pair = TwoNodes::new("mended", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    let good = StockNode::vxlan(9, FREE_IP, FREE_MAC);
    pair.etcd.put(&good.key(), "{", None)?;
    agent.wait_status("the refused lease", |status| {
        ensure!(rejected(status).contains_key(good.name().as_str()));
        Ok(())
    })?;
    good.put(&pair.etcd)?;
    agent.wait_peers(1)?;
    assert_eq!(rejected(&agent.status()?).len(), 0);
    Ok(())
}
