//! The table of who is masqueraded, packet by packet, for both families.

use anyhow::{Result, ensure};
use flannel_host::family::Family;
use flannel_traffic::Engine::{self, Iptables, Nftables};

use super::support::{Cluster, of, of_a, of_c, of_node, outside, seen};

fn the_table_holds(name: &str, engine: Engine) -> Result<()> {
    let cluster = Cluster::new(name, engine, &["--ip-masq"])?;
    for family in Family::BOTH {
        unmarked(&cluster, engine, family)?;
        // kube-proxy masquerades what it marks; here it does not.
        let Cluster { net, near, .. } = &cluster;
        let (tool, pod) = (
            if family == Family::V4 {
                "iptables"
            } else {
                "ip6tables"
            },
            of(near, family)?,
        );
        net.a.sh(&format!(
            "{tool} -t mangle -A FORWARD -s {pod} -j MARK --set-xmark 0x4000/0x4000"
        ))?;
        assert_eq!(
            seen(near, None, &net.r, outside(family))?,
            pod,
            "pod -> outside, marked"
        );
    }
    ensure!(cluster.net.a.subnet_env()?.ipmasq, "FLANNEL_IPMASQ");
    Ok(())
}

fn unmarked(cluster: &Cluster, engine: Engine, family: Family) -> Result<()> {
    let Cluster { net, near, far, .. } = cluster;
    let (near_ip, far_ip, node) = (of(near, family)?, of(far, family)?, of_a(family));
    let (tunnel, bridge) = of_node(&net.a, family)?;
    assert_eq!(
        seen(near, None, &net.r, outside(family))?,
        node,
        "pod -> outside"
    );
    assert_eq!(
        seen(near, None, &net.c, of_c(family))?,
        node,
        "pod -> another node's own address"
    );
    assert_eq!(
        seen(near, None, far, far_ip)?,
        near_ip,
        "pod -> pod of another node"
    );
    assert_eq!(seen(far, None, near, near_ip)?, far_ip, "and the other way");
    assert_eq!(
        seen(&net.r, None, near, near_ip)?,
        outside(family),
        "outside -> pod"
    );
    assert_eq!(
        seen(&net.a, None, far, far_ip)?,
        tunnel,
        "node -> pod of another node"
    );
    assert_eq!(
        seen(&net.a, None, near, near_ip)?,
        bridge,
        "node -> its own pod"
    );
    let foreign = match engine {
        Iptables => tunnel,
        Nftables => node,
    };
    assert_eq!(
        seen(&net.a, Some(node), far, far_ip)?,
        foreign,
        "node's own address -> pod of another node"
    );
    Ok(())
}

#[test]
fn iptables_masquerades_as_the_table_says() -> Result<()> {
    the_table_holds("masqipt", Iptables)
}

#[test]
fn nftables_masquerades_as_the_table_says() -> Result<()> {
    the_table_holds("masqnft", Nftables)
}

#[test]
fn without_masquerade_everybody_keeps_their_address() -> Result<()> {
    let cluster = Cluster::new("nomasq", Iptables, &[])?;
    let Cluster { net, near, far, .. } = &cluster;
    for family in Family::BOTH {
        assert_eq!(
            seen(near, None, &net.r, outside(family))?,
            of(near, family)?
        );
        assert_eq!(seen(near, None, far, of(far, family)?)?, of(near, family)?);
    }
    ensure!(!net.a.subnet_env()?.ipmasq, "FLANNEL_IPMASQ");
    Ok(())
}

/// As on a host with Docker.
#[test]
fn forward_rules_let_pods_through_a_policy_of_drop() -> Result<()> {
    let mut cluster = Cluster::new("forward", Iptables, &["--ip-masq"])?;
    for node in [&cluster.net.a, &cluster.net.b] {
        node.sh("iptables -P FORWARD DROP")?;
        node.sh("ip6tables -P FORWARD DROP")?;
    }
    for family in Family::BOTH {
        seen(&cluster.near, None, &cluster.far, of(&cluster.far, family)?)?;
    }
    cluster.masquerades()?;
    cluster.replace(&["--ip-masq", "--iptables-forward-rules=false"])?;
    let stopped = seen(&cluster.near, None, &cluster.net.r, outside(Family::V4))
        .expect_err("the policy drops");
    ensure!(stopped.to_string().contains("->"), "{stopped}");
    Ok(())
}

/// Masquerade takes any port, and once in 64,512 that of the tunnel: what comes back to it is no
/// tunnel packet.
#[test]
fn an_answer_to_the_port_of_the_tunnel_reaches_the_pod_that_asked() -> Result<()> {
    let cluster = Cluster::new("masqport", Iptables, &["--ip-masq"])?;
    for family in Family::BOTH {
        let Cluster { net, near, .. } = &cluster;
        let (tool, to) = match family {
            Family::V4 => ("iptables", format!("{}:8472", of_a(family))),
            Family::V6 => ("ip6tables", format!("[{}]:8472", of_a(family))),
        };
        let pod = of(near, family)?;
        net.a.sh(&format!(
            "{tool} -t nat -I POSTROUTING -s {pod} -p udp -j SNAT --to-source {to}"
        ))?;
        assert_eq!(
            seen(near, None, &net.r, outside(family))?,
            of_a(family),
            "{family}"
        );
    }
    Ok(())
}
