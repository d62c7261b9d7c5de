//! The table of who is masqueraded, packet by packet.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Result, ensure};

use crate::support::{A, Cluster, IPTABLES, NFTABLES, OUTSIDE, seen};

/// What both engines do alike.
fn common(cluster: &Cluster) -> Result<()> {
    let Cluster { net, near, far, .. } = cluster;
    let elsewhere = Ipv4Addr::new(192, 168, 2, 13);
    assert_eq!(seen(near, None, &net.r, OUTSIDE.into())?, IpAddr::V4(A), "pod -> outside");
    assert_eq!(seen(near, None, &net.c, elsewhere.into())?, IpAddr::V4(A), "pod -> another node's own address");
    assert_eq!(seen(near, None, far, far.ip())?, near.ip(), "pod -> pod of another node");
    assert_eq!(seen(far, None, near, near.ip())?, far.ip(), "and the other way");
    assert_eq!(seen(&net.r, None, near, near.ip())?, IpAddr::V4(OUTSIDE), "outside -> pod");
    let tunnel = near.node().subnet_env()?.subnets[0].network();
    assert_eq!(seen(&net.a, None, far, far.ip())?, tunnel, "node -> pod of another node");
    assert_eq!(
        seen(&net.a, None, near, near.ip())?,
        near.node().subnet_env()?.subnets[0].addr(),
        "node -> its own pod"
    );

    // kube-proxy masquerades what it marks; here it does not.
    net.a.sh(&format!("iptables -t mangle -A FORWARD -s {} -j MARK --set-xmark 0x4000/0x4000", near.ip()))?;
    assert_eq!(seen(near, None, &net.r, OUTSIDE.into())?, near.ip(), "pod -> outside, marked");
    Ok(())
}

#[test]
fn iptables_masquerades_as_the_table_says() -> Result<()> {
    let cluster = Cluster::new("masqipt", IPTABLES, &["--ip-masq"])?;
    common(&cluster)?;
    let Cluster { net, far, near, .. } = &cluster;
    let tunnel = near.node().subnet_env()?.subnets[0].network();
    assert_eq!(seen(&net.a, Some(A), far, far.ip())?, tunnel, "node's own address -> pod of another node");
    ensure!(near.node().subnet_env()?.ipmasq, "FLANNEL_IPMASQ");
    Ok(())
}

#[test]
fn nftables_masquerades_as_the_table_says() -> Result<()> {
    let cluster = Cluster::new("masqnft", NFTABLES, &["--ip-masq"])?;
    common(&cluster)?;
    let Cluster { net, far, .. } = &cluster;
    assert_eq!(seen(&net.a, Some(A), far, far.ip())?, IpAddr::V4(A), "node's own address -> pod of another node");
    Ok(())
}

#[test]
fn without_masquerade_everybody_keeps_their_address() -> Result<()> {
    let cluster = Cluster::new("nomasq", IPTABLES, &[])?;
    let Cluster { net, near, far, .. } = &cluster;
    assert_eq!(seen(near, None, &net.r, OUTSIDE.into())?, near.ip());
    assert_eq!(seen(near, None, far, far.ip())?, near.ip());
    ensure!(!near.node().subnet_env()?.ipmasq, "FLANNEL_IPMASQ");
    Ok(())
}

/// As on a host with Docker.
#[test]
fn forward_rules_let_pods_through_a_policy_of_drop() -> Result<()> {
    let mut cluster = Cluster::new("forward", IPTABLES, &["--ip-masq"])?;
    for node in [&cluster.net.a, &cluster.net.b] {
        node.sh("iptables -P FORWARD DROP")?;
    }
    seen(&cluster.near, None, &cluster.far, cluster.far.ip())?;
    seen(&cluster.near, None, &cluster.net.r, OUTSIDE.into())?;
    cluster.replace(&["--ip-masq", "--iptables-forward-rules=false"])?;
    let stopped = seen(&cluster.near, None, &cluster.net.r, OUTSIDE.into()).expect_err("the policy drops").to_string();
    ensure!(stopped.contains("->"), "{stopped}");
    Ok(())
}
