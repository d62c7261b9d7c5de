//! The ways on which packets of a cluster go: between pods, to Services, to and from nodes, and
//! from outside.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Host, eventually,
    kubernetes::{Kubernetes, OUTSIDE},
};
use serde_json::Value;

const SERVERS: &str = include_str!("servers.yml");
/// The label of the servers.
pub(crate) const LABEL: &str = "app=web";
/// kube-proxy writes its rules every so often.
const RULES: Duration = Duration::from_mins(1);

/// The servers that all tests talk to.
pub(crate) fn servers(cluster: &Kubernetes) -> Result<()> {
    cluster.kubectl().apply(SERVERS)?;
    cluster.wait_ready("default", LABEL)
}

/// The answer of an HTTP server to a request from `from`.
pub(crate) fn ask(from: &Host, url: &str) -> Result<String> {
    Ok(from
        .run([
            "curl",
            "--silent",
            "--show-error",
            "--fail",
            "--globoff",
            "--max-time",
            "5",
            url,
        ])?
        .stdout)
}

/// The address of a Service in the cluster.
pub(crate) fn service(cluster: &Kubernetes, name: &str) -> Result<String> {
    let found = cluster.kubectl().get(["service", name])?;
    Ok(found["spec"]["clusterIP"]
        .as_str()
        .context("an address of the Service")?
        .to_owned())
}

fn status(cluster: &Kubernetes, node: &str) -> Result<Value> {
    Ok(serde_json::from_str(
        &cluster.agent(node, &["status", "--output=json"])?,
    )?)
}

/// In the image, with the capabilities and the profile of the manifest.
pub(crate) fn the_agents_name_their_peers_which_answer(cluster: &Kubernetes) -> Result<()> {
    let names: BTreeSet<&str> = cluster.nodes.iter().map(|node| node.name()).collect();
    for name in &names {
        eventually("answers of all peers", RULES, || {
            let status = status(cluster, name)?;
            let peers = status["peers"].as_array().context("peers")?;
            let answering = peers
                .iter()
                .filter(|peer| peer["echo"]["state"] == "answering");
            let mut found: BTreeSet<&str> =
                answering.filter_map(|peer| peer["node"].as_str()).collect();
            found.insert(name);
            ensure!(found == names, "{name}: {peers:?}");
            Ok(())
        })?;
    }
    Ok(())
}

pub(crate) fn the_agents_are_in_mode_fast(cluster: &Kubernetes) -> Result<()> {
    the_agents_are_in_mode(cluster, "fast")
}

pub(crate) fn the_agents_are_in_mode(cluster: &Kubernetes, mode: &str) -> Result<()> {
    for node in &cluster.nodes {
        let status = status(cluster, node.name())?;
        ensure!(
            status["mode"]["effective"] == mode,
            "{}: {status}",
            node.name()
        );
    }
    Ok(())
}

pub(crate) fn every_pod_and_node_reaches_every_pod_and_service(cluster: &Kubernetes) -> Result<()> {
    let pods = cluster.pods(LABEL)?;
    ensure!(pods.len() == cluster.nodes.len(), "{pods:?}");
    let [web, local] = [service(cluster, "web")?, service(cluster, "local")?];
    eventually("rules of kube-proxy", RULES, || {
        cluster
            .nodes
            .iter()
            .try_for_each(|node| ask(node, &format!("http://{web}/hostname")).map(drop))
    })?;
    for from in &pods {
        for to in &pods {
            ensure!(ask(from, &format!("http://{}:8080/hostname", to.address()))? == to.name());
            from.run([
                "ping",
                "-q",
                "-c2",
                "-i0.2",
                "-W2",
                &to.address().to_string(),
            ])?;
        }
        for node in &cluster.nodes {
            for port in [30080, 18080] {
                ask(from, &format!("http://{}:{port}/hostname", node.address()))?;
            }
            ask(node, &format!("http://{}:8080/hostname", from.address()))?;
            ask(node, &format!("http://{web}/hostname"))?;
        }
        every_server_answers(from, &web)?;
        ask(from, &format!("http://{local}/hostname"))?;
    }
    from_outside(cluster)
}

/// A Service spreads connections over its pods.
fn every_server_answers(from: &Host, service: &str) -> Result<()> {
    let mut names = BTreeSet::new();
    eventually("an answer of each server of the Service", RULES, || {
        names.insert(ask(from, &format!("http://{service}/hostname"))?);
        ensure!(names.len() == 3, "answers of {names:?}");
        Ok(())
    })
}

/// By hostPort and NodePort; where the policy is Local, the server sees the client's address.
fn from_outside(cluster: &Kubernetes) -> Result<()> {
    for node in &cluster.nodes {
        for port in [30080, 18080] {
            ask(
                &cluster.outside,
                &format!("http://{}:{port}/hostname", node.address()),
            )?;
        }
        let client = ask(
            &cluster.outside,
            &format!("http://{}:30082/clientip", node.address()),
        )?;
        ensure!(
            client.starts_with(&format!("{OUTSIDE}:")),
            "{}: the server saw {client}",
            node.name()
        );
    }
    Ok(())
}
