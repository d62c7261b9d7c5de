//! Configurations that cannot be served end the start, with the value and the remedy.

use anyhow::{Result, ensure};
use flannel_tests::{
    TwoNodes,
    cluster::{self, topology::Stack},
};

use super::{HOST_GW, VXLAN};

/// The agent's end on a node that was prepared by `command`.
fn refused(stack: Stack, backend: &str, command: &str, flag: &str, message: &str) -> Result<()> {
    let pair = TwoNodes::with("refused6", stack, &cluster::config(stack, backend))?;
    pair.a.sh(command)?;
    let (code, text) = pair.a.agent(pair.options()?.flag(flag))?.wait_end()?;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains(message), "{message:?} in:\n{text}");
    assert!(!pair.a.outside_path("/run/flannel/subnet.env").exists());
    Ok(())
}

#[test]
fn a_nat_before_a_node_without_a_tunnel_ends_the_start() -> Result<()> {
    for (stack, flag) in [
        (Stack::V4, "--public-ip=203.0.113.7"),
        (Stack::V6, "--public-ipv6=2001:db8:ffff::7"),
    ] {
        refused(
            stack,
            HOST_GW,
            "true",
            flag,
            "host-gw needs a node's own address",
        )?;
    }
    Ok(())
}

#[test]
fn an_mtu_too_small_for_ipv6_ends_the_start() -> Result<()> {
    let message = "an external MTU of 1349 bytes leaves 1279 for IPv6 pods, and IPv6 needs 1280";
    refused(
        Stack::Dual,
        VXLAN,
        "ip link set eth0 mtu 1349",
        "--v=0",
        message,
    )
}

#[test]
fn a_device_name_that_is_too_long_ends_the_start() -> Result<()> {
    let message = "the IPv6 tunnel device would be flannel-v6.10000, and a device's name has at \
        most 15 bytes";
    refused(
        Stack::V6,
        r#"{"Type":"vxlan","VNI":10000}"#,
        "true",
        "--v=0",
        message,
    )
}

#[test]
fn a_node_without_an_ipv6_address_waits_for_one() -> Result<()> {
    let pair = TwoNodes::with("late6", Stack::Dual, &cluster::config(Stack::Dual, VXLAN))?;
    pair.a.sh("ip -6 address flush dev eth0")?;
    let agent = pair.a.agent(pair.options()?)?;
    agent.wait_status("no IPv6 address", |status| {
        ensure!(
            status["error"]
                .as_str()
                .is_some_and(|error| error.contains("eth0: no usable IPv6 address"))
        );
        Ok(())
    })?;
    pair.a.address("eth0", "2001:db8:1::11/64", None)?;
    agent.wait_ready()
}
