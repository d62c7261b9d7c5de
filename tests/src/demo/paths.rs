//! The state that the agents agreed on and programmed, and the commands to inspect it.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{
    Cluster,
    page::Page,
    table::{row, table},
};
use crate::{Agent, Host, Lab, cluster};

/// One line for each agent.
pub(super) fn agents(page: &mut Page, agents: &[Agent]) -> Result<()> {
    let mut rows = vec![row(["node", "lease", "mode", "ready"])];
    for agent in agents {
        let status = agent.status()?;
        let (lease, mode) = (
            text(&status["lease"]["subnet"]),
            text(&status["mode"]["effective"]),
        );
        rows.push(row([
            agent.node().name(),
            &lease,
            &mode,
            &status["ready"].to_string(),
        ]));
        page.expect(
            mode == "fast",
            &format!("mode of {}: {}", agent.node().name(), status["mode"]),
        );
    }
    page.line(&table(&rows));
    Ok(())
}

/// The leases as stock flannel would read them.
pub(super) fn leases(page: &mut Page, cluster: &Cluster) -> Result<()> {
    let leases = cluster.etcd.list(cluster::LEASES)?;
    page.expect(
        leases.len() == 3,
        &format!("{} leases of three nodes", leases.len()),
    );
    let mut rows = vec![row(["key", "PublicIP", "type", "data"])];
    for (key, value) in leases {
        let lease: Value =
            serde_json::from_str(&value).with_context(|| format!("{key}: {value}"))?;
        page.expect(
            lease["BackendType"] == "vxlan",
            &format!("backend {}", lease["BackendType"]),
        );
        let key = key.strip_prefix(cluster::LEASES).unwrap_or(&key);
        let (ip, kind) = (text(&lease["PublicIP"]), text(&lease["BackendType"]));
        rows.push(row([key, &ip, &kind, &lease["BackendData"].to_string()]));
    }
    page.line(&table(&rows));
    page.proved("keys and values are stock flannel's, so its nodes share the cluster");
    Ok(())
}

/// The peer map and the kernel's routes of the same peers.
pub(super) fn peers(page: &mut Page, cluster: &Cluster) -> Result<()> {
    page.line(&cluster.agents[0].cli(&["maps", "dump", "peers"])?.stdout);
    page.gap();
    page.line("and the kernel's routes beside it, one without and one with a tunnel:");
    let routes = cluster.net.a.sh("ip route show root 10.244.0.0/16")?.stdout;
    let of = |device: &str| {
        routes
            .lines()
            .filter(|line| line.contains(" via ") && line.contains(device))
            .count()
    };
    page.expect(
        of("dev eth0") == 1,
        "b is on a's segment: its route leads straight to it",
    );
    page.expect(
        of("dev flannel.1") == 1,
        "c is behind the router: its route leads through the tunnel",
    );
    for route in routes.lines().filter(|line| line.contains(" via ")) {
        page.line(route.trim_end());
    }
    Ok(())
}

/// Prints how to enter the hosts that stay.
pub(super) fn how_to_enter(page: &mut Page, lab: &Lab, cluster: &Cluster) {
    let nodes = cluster
        .net
        .nodes()
        .into_iter()
        .chain([&cluster.net.r])
        .map(|node| -> &Host { node });
    let hosts: Vec<&Host> = nodes
        .chain(cluster.pods.iter().map(|pod| -> &Host { pod }))
        .collect();
    for host in hosts {
        page.line(&format!(
            "{:<5} {} bash",
            host.name(),
            host.enter_argv().join(" ")
        ));
    }
    page.gap();
    for agent in &cluster.agents {
        page.line(&format!(
            "log of the agent on {}: {}",
            agent.node().name(),
            agent.child().log_path().display()
        ));
    }
    page.gap();
    page.line(&format!(
        "`cargo xtask clean-lab` removes it ({})",
        lab.name()
    ));
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
