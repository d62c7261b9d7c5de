//! Changes of the cluster while pods talk: an update of the agents, an API server that is away, a
//! node that goes and comes back.

use std::{net::UdpSocket, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    eventually,
    host::joined,
    kubernetes::{Kubernetes, PodOnNode, condition_is_true, flannel, items},
};
use ipnet::Ipv4Net;
use serde_json::Value;

use super::{
    paths::{self, LABEL},
    traffic::Traffic,
};

/// By then controllers and kubelets have followed a change.
const FOLLOWED: Duration = Duration::from_mins(3);
/// Longer than the delays of all parts that retry.
const OUTAGE: Duration = Duration::from_mins(1);

/// No packet is lost between peers that know each other: an agent that ends leaves its datapath,
/// and the next one adopts it.
pub(crate) fn an_update_of_the_agents_loses_no_packet(cluster: &Kubernetes) -> Result<()> {
    let traffic = Traffic::start(cluster)?;
    cluster.restart()?;
    traffic.expect_complete()
}

/// The time at which the network of each node was last said to be there, or not.
fn network_transitions(cluster: &Kubernetes) -> Result<Vec<Value>> {
    let nodes = cluster.kubectl().get(["nodes"])?;
    items(&nodes)
        .map(|node| {
            let conditions = node["status"]["conditions"]
                .as_array()
                .context("conditions")?;
            let network = conditions
                .iter()
                .find(|condition| condition["type"] == "NetworkUnavailable");
            let network = network
                .with_context(|| format!("NetworkUnavailable of {}", node["metadata"]["name"]))?;
            ensure!(network["status"] == "False", "{network}");
            Ok(network["lastTransitionTime"].clone())
        })
        .collect()
}

/// Pods go on talking, and no node is said to be without network when the API server is back.
pub(crate) fn an_api_server_that_is_away_costs_nothing(cluster: &Kubernetes) -> Result<()> {
    let before = network_transitions(cluster)?;
    let traffic = Traffic::start(cluster)?;
    cluster.control.kill_api_server()?;
    thread::sleep(OUTAGE);
    cluster.control.start_api_server()?;
    cluster.wait_ready(flannel::NAMESPACE, flannel::LABEL)?;
    traffic.expect_complete()?;
    ensure!(
        network_transitions(cluster)? == before,
        "conditions changed: {before:?}"
    );
    Ok(())
}

fn pod_network(cluster: &Kubernetes, node: &str) -> Result<String> {
    let found = cluster.kubectl().get(["node", node])?;
    Ok(found["spec"]["podCIDR"]
        .as_str()
        .with_context(|| format!("podCIDR of {node}"))?
        .to_owned())
}

/// The others forget its subnet; it comes back with another one, and new pods on it are reached.
pub(crate) fn a_node_that_comes_back_with_another_subnet_is_followed(
    cluster: &Kubernetes,
) -> Result<()> {
    let node = cluster.node("n3")?;
    let before = pod_network(cluster, "n3")?;
    let kubectl = cluster.kubectl();
    kubectl
        .command(["drain", "n3", "--ignore-daemonsets", "--force"])
        .limit(FOLLOWED)
        .run()?;
    kubectl.delete(["node", "n3"])?;
    let knows = |subnet: &str| -> Result<bool> {
        let peers: Value =
            serde_json::from_str(&cluster.agent("n1", &["status", "--output=json"])?)?;
        Ok(peers["peers"]
            .as_array()
            .context("peers")?
            .iter()
            .any(|peer| peer["subnet"] == subnet))
    };
    eventually("the peer to be forgotten", FOLLOWED, || {
        ensure!(!knows(&before)?, "n1 still knows {before}");
        Ok(())
    })?;
    // A kubelet registers its node when it starts.
    node.restart_kubelet()?;
    let after = eventually("the node to be back with a subnet", FOLLOWED, || {
        let subnet = pod_network(cluster, "n3")?;
        condition_is_true(&kubectl.get(["node", "n3"])?, "Ready")?;
        Ok(subnet)
    })?;
    ensure!(after != before, "the controller gave out {before} again");
    // Its old pods keep their addresses, which lead nowhere any more.
    kubectl.delete([
        "pods",
        "--selector",
        LABEL,
        "--field-selector=spec.nodeName=n3",
    ])?;
    let network: Ipv4Net = after.parse()?;
    let pods = eventually(
        "a server with an address of the new subnet",
        FOLLOWED,
        || {
            let pods = wait_for_all(cluster)?;
            ensure!(
                pods.iter().any(|pod| network.contains(&pod.address())),
                "{pods:?}"
            );
            Ok(pods)
        },
    )?;
    for (from, to) in [(&pods[0], &pods[2]), (&pods[2], &pods[1])] {
        ensure!(paths::ask(from, &format!("http://{}:8080/hostname", to.address()))? == to.name());
    }
    ensure!(knows(&after)?, "n1 does not know {after}");
    cluster.wait_ready(flannel::NAMESPACE, flannel::LABEL)
}

/// The answer of the servers' UDP port to one socket, which keeps its port.
fn name_by(socket: &UdpSocket) -> Result<String> {
    socket.send(b"hostname")?;
    let mut answer = [0; 256];
    let length = socket.recv(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).trim().to_owned())
}

/// kube-proxy deletes the conntrack entry of a flow to an endpoint that is gone; packets of a flow
/// that mode fast knew must not go on to it.
pub(crate) fn a_udp_flow_moves_on_when_its_endpoint_goes(cluster: &Kubernetes) -> Result<()> {
    let service = paths::service(cluster, "web")?;
    let pods = cluster.pods(LABEL)?;
    let client = pods.first().context("a pod")?.clone();
    let kubectl = cluster.kubectl().clone();
    let own = client.name().to_owned();
    let flow = client.thread(move || {
        // The client's own pod is not to go: its network would go with it.
        let (socket, first) =
            eventually("an answer of another pod by the Service", FOLLOWED, || {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                socket.set_read_timeout(Some(Duration::from_secs(1)))?;
                socket.connect(format!("{service}:81"))?;
                let name = name_by(&socket)?;
                ensure!(name != own, "{name} answers itself");
                Ok((socket, name))
            })?;
        // Enough for the flow to be known.
        for _ in 0..50 {
            ensure!(name_by(&socket)? == first, "the flow changed its server");
        }
        // The flow moves on while the pod ends.
        kubectl.delete(["pod", &first, "--wait=false"])?;
        eventually("an answer of another server", FOLLOWED, || {
            let name = name_by(&socket)?;
            ensure!(name != first, "{name} answers still");
            Ok(())
        })
    })?;
    let moved = joined(flow);
    // Also after a failure: the next test takes the pods it finds.
    wait_for_all(cluster)?;
    moved
}

/// Waits until no server is being deleted and each node has one that is ready.
fn wait_for_all(cluster: &Kubernetes) -> Result<Vec<PodOnNode>> {
    eventually("a server on each node", FOLLOWED, || {
        cluster.wait_ready("default", LABEL)?;
        let pods = cluster.pods(LABEL)?;
        ensure!(pods.len() == cluster.nodes.len(), "{pods:?}");
        Ok(pods)
    })
}
