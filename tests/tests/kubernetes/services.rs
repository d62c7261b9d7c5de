//! Kinds of Services and pods with the node's own network.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    eventually,
    kubernetes::{Kubernetes, items},
};

use super::paths::{self, LABEL};

const HOST_SERVERS: &str = include_str!("host_servers.yml");
const RULES: Duration = Duration::from_mins(1);

/// Every connection of a client goes to the server of its first.
pub(crate) fn a_service_with_session_affinity_keeps_its_server(cluster: &Kubernetes) -> Result<()> {
    let url = format!("http://{}/hostname", paths::service(cluster, "sticky")?);
    for client in cluster.pods(LABEL)? {
        let first = eventually("an answer of the Service", RULES, || {
            paths::ask(&client, &url)
        })?;
        for _ in 0..10 {
            let server = paths::ask(&client, &url)?;
            ensure!(server == first, "{}: {server} after {first}", client.name());
        }
    }
    Ok(())
}

/// From pods, nodes and through a Service; and such a pod reaches pods.
pub(crate) fn pods_with_the_nodes_network_are_reached(cluster: &Kubernetes) -> Result<()> {
    cluster.kubectl().apply(HOST_SERVERS)?;
    cluster.wait_ready("default", "app=host-web")?;
    let service = paths::service(cluster, "host-web")?;
    let pods = cluster.pods(LABEL)?;
    for pod in &pods {
        for node in &cluster.nodes {
            ensure!(
                paths::ask(pod, &format!("http://{}:8090/hostname", node.address()))?
                    == node.name()
            );
        }
        eventually("an answer of the Service", RULES, || {
            paths::ask(pod, &format!("http://{service}/hostname"))
        })?;
    }
    for pod in items(&cluster.kubectl().get(["pods", "--selector=app=host-web"])?) {
        let name = pod["metadata"]["name"].as_str().context("a name")?;
        for to in &pods {
            let server = format!("{}:8080", to.address());
            cluster.kubectl().run([
                "exec",
                name,
                "--",
                "/agnhost",
                "connect",
                &server,
                "--timeout=5s",
            ])?;
        }
    }
    cluster.kubectl().delete_manifests(HOST_SERVERS)
}
