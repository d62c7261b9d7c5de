//! Flows of the cluster by the observer API of Hubble: the ends of pods, Services, NodePorts and
//! drops have their names, for our own client and, where `FLANNEL_HUBBLE` names it, for the real
//! CLI.

#[path = "../../../support/observer.rs"]
mod observer;
mod shown;

use std::{env, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_hubble::observer::{Content, GetFlowsRequest, GetFlowsResponse};
use flannel_tests::{
    eventually,
    kubernetes::{Kubernetes, Member, OUTSIDE, PodOnNode, flannel},
    not_run,
};
use ipnet::Ipv4Net;

use self::shown::ShownFlow;
use super::paths::{self, LABEL};

const SOCKET: &str = "/run/flannel/hubble.sock";
/// The most flows that a client asks for.
const LAST: u32 = 2000;
/// By then a flow is shown, and kube-proxy has sent a connection to a server of another node.
const SHOWN: Duration = Duration::from_mins(1);

/// Makes packets, and names the flows that they are shown as: the node, and the line.
type Packets = fn(&Scene<'_>) -> Result<Vec<(String, String)>>;

const CASES: &[(&str, Packets)] = &[
    ("pod to pod", pod_to_pod),
    ("pod to Service", pod_to_service),
    ("NodePort by the node of the server", node_port),
    ("NodePort by another node", node_port_of_another_node),
    ("tunnel packet of a pod", tunnel_packet_of_a_pod),
    ("packet that a policy drops", packet_that_a_policy_drops),
];

/// The servers, by their nodes.
struct Scene<'a> {
    cluster: &'a Kubernetes,
    pods: Vec<PodOnNode>,
}

impl Scene<'_> {
    /// The node of a pod.
    fn node(&self, pod: &PodOnNode) -> Result<&Member> {
        self.cluster.node(pod.node())
    }

    /// The subnet of a node.
    fn subnet(&self, node: &str) -> Result<Ipv4Net> {
        let object = self.cluster.kubectl().get(["node", node])?;
        Ok(object["spec"]["podCIDR"]
            .as_str()
            .context("podCIDR")?
            .parse()?)
    }

    /// The server with this name, if it is not on this node.
    fn server_elsewhere(&self, name: &str, node: &str) -> Result<&PodOnNode> {
        let found = self
            .pods
            .iter()
            .find(|pod| pod.name() == name && pod.node() != node);
        found.with_context(|| format!("the server {name} is on {node}"))
    }
}

fn pod(pod: &PodOnNode) -> String {
    format!("default/{}", pod.name())
}

fn pod_to_pod(scene: &Scene<'_>) -> Result<Vec<(String, String)>> {
    let (from, to) = (&scene.pods[0], &scene.pods[1]);
    paths::ask(from, &format!("http://{}:8080/hostname", to.address()))?;
    let line = format!("FORWARDED: {} -> {}, port 8080", pod(from), pod(to));
    Ok([from, to]
        .map(|end| (end.node().to_owned(), line.clone()))
        .into())
}

/// The node of the client shows the Service, and the node of the server the server.
fn pod_to_service(scene: &Scene<'_>) -> Result<Vec<(String, String)>> {
    let from = &scene.pods[1];
    let server = paths::ask(
        from,
        &format!("http://{}/hostname", paths::service(scene.cluster, "web")?),
    )?;
    let server = scene.server_elsewhere(&server, from.node())?;
    let line = |to: &str| format!("FORWARDED: {} -> {to}", pod(from));
    let (service, backend) = (
        line("Service default/web, port 80"),
        line(&format!("{}, port 8080", pod(server))),
    );
    Ok(vec![
        (from.node().to_owned(), service),
        (server.node().to_owned(), backend),
    ])
}

/// By `externalTrafficPolicy: Local` the server sees the client's address.
fn node_port(scene: &Scene<'_>) -> Result<Vec<(String, String)>> {
    let server = &scene.pods[2];
    paths::ask(
        &scene.cluster.outside,
        &format!("http://{}:30082/hostname", scene.node(server)?.address()),
    )?;
    let line = format!(
        "FORWARDED: reserved:world {OUTSIDE} -> {}, port 8080",
        pod(server)
    );
    Ok(vec![(server.node().to_owned(), line)])
}

/// The node that is asked masquerades the client by the address of its tunnel device, the first of
/// its subnet.
fn node_port_of_another_node(scene: &Scene<'_>) -> Result<Vec<(String, String)>> {
    let asked = scene.node(&scene.pods[0])?;
    let server = paths::ask(
        &scene.cluster.outside,
        &format!("http://{}:30080/hostname", asked.address()),
    )?;
    let server = scene.server_elsewhere(&server, asked.name())?;
    let address = scene.subnet(asked.name())?.network();
    let line = format!(
        "FORWARDED: reserved:remote-node {} {address} -> {}, port 8080",
        asked.name(),
        pod(server)
    );
    Ok(vec![(server.node().to_owned(), line)])
}

/// A header of VXLAN with the VNI of the cluster, which only nodes may send.
fn tunnel_packet_of_a_pod(scene: &Scene<'_>) -> Result<Vec<(String, String)>> {
    let from = &scene.pods[0];
    let (name, address) = (from.node().to_owned(), scene.node(from)?.address());
    let send = format!(r"printf '\010\0\0\0\0\0\001\0xxxxxxxxxxxxxx' > /dev/udp/{address}/8472");
    from.run(["bash", "-c", &send])?;
    let reason = "ENCAPSULATION_TRAFFIC_IS_PROHIBITED";
    let line = format!(
        "DROPPED {reason}: {} -> reserved:host {name} {address}, port 8472",
        pod(from)
    );
    Ok(vec![(name, line)])
}

/// A rule of the sender's node, as a policy engine installs it.
fn packet_that_a_policy_drops(scene: &Scene<'_>) -> Result<Vec<(String, String)>> {
    const PORT: u16 = 8082;
    let (from, to) = (&scene.pods[0], &scene.pods[1]);
    let node = scene.node(from)?;
    node.nft(&format!(
        "table inet netpol {{ chain pods {{ type filter hook forward priority 10; \
         ip daddr {} tcp dport {PORT} drop; }}; }}",
        to.address()
    ))?;
    let asked = paths::ask(from, &format!("http://{}:{PORT}/", to.address()));
    node.nft("delete table inet netpol")?;
    ensure!(asked.is_err(), "{asked:?}");
    let line = format!(
        "DROPPED POLICY_DENIED: {} -> {}, port {PORT}",
        pod(from),
        pod(to)
    );
    Ok(vec![(from.node().to_owned(), line)])
}

/// The last flows of a node, by a client.
type Client<'a> = &'a dyn Fn(&Member) -> Result<Vec<ShownFlow>>;

fn by_our_client(node: &Member) -> Result<Vec<ShownFlow>> {
    let request = GetFlowsRequest {
        number: LAST.into(),
        ..GetFlowsRequest::default()
    };
    let mut flows = Vec::new();
    observer::ask(
        &node.outside_path(SOCKET),
        "observer.Observer/GetFlows",
        &request,
        |response| {
            if let GetFlowsResponse {
                content: Some(Content::Flow(flow)),
                ..
            } = response
            {
                flows.push(ShownFlow::of_message(&flow));
            }
            false
        },
    )?;
    Ok(flows)
}

fn by_the_real_cli(node: &Member, binary: &str) -> Result<Vec<ShownFlow>> {
    let (last, server) = (
        format!("--last={LAST}"),
        format!("--server=unix://{SOCKET}"),
    );
    let command = [
        "env",
        "HOME=/run",
        binary,
        "observe",
        &last,
        &server,
        "--output=jsonpb",
        "--timeout=20s",
    ];
    let documents = node.run(command)?.stdout;
    documents
        .lines()
        .map(|line| Ok(ShownFlow::of_document(&serde_json::from_str(line)?)))
        .collect()
}

/// Makes the packets of a case until this client shows their flows.
fn is_shown(scene: &Scene<'_>, client: Client<'_>, packets: Packets) -> Result<()> {
    let shown = eventually("the flows", SHOWN, || {
        let expected = packets(scene)?;
        for (name, line) in &expected {
            let flows: Vec<_> = client(scene.cluster.node(name)?)?
                .iter()
                .map(ToString::to_string)
                .collect();
            ensure!(
                flows.contains(line),
                "{name} does not show\n{line}\nbut only\n{}",
                flows.join("\n")
            );
        }
        Ok(expected)
    })?;
    for (name, line) in shown {
        println!("{name}  {line}");
    }
    Ok(())
}

fn all_cases(scene: &Scene<'_>, client: Client<'_>) -> Result<()> {
    for (what, packets) in CASES {
        println!("{what}:");
        is_shown(scene, client, *packets).context(*what)?;
    }
    Ok(())
}

/// The manifest with the socket, and with the right to look names of pods up.
fn observed() -> Result<String> {
    let mut manifest = flannel::manifest()?;
    let (flag, rules) = ("        - --kube-subnet-mgr\n", "rules:\n");
    for (place, addition) in [
        (flag, format!("        - --hubble-socket={SOCKET}\n")),
        (
            rules,
            "- apiGroups: [\"\"]\n  resources: [pods]\n  verbs: [list]\n".to_owned(),
        ),
    ] {
        ensure!(
            manifest.matches(place).count() == 1,
            "{place} is not once in the manifest"
        );
        manifest = manifest.replace(place, &format!("{place}{addition}"));
    }
    Ok(manifest)
}

fn clients_show_flows(cluster: &Kubernetes) -> Result<()> {
    let scene = Scene {
        cluster,
        pods: cluster.pods(LABEL)?,
    };
    ensure!(scene.pods.len() == cluster.nodes.len(), "{:?}", scene.pods);
    all_cases(&scene, &by_our_client)?;
    let Ok(binary) = env::var("FLANNEL_HUBBLE") else {
        not_run(
            "the CLI of Hubble on the cluster",
            "FLANNEL_HUBBLE does not name its binary",
        );
        return Ok(());
    };
    println!("by {binary}:");
    all_cases(&scene, &|node| by_the_real_cli(node, &binary)).context("the real CLI")
}

pub(crate) fn clients_of_hubble_show_names_and_drops(cluster: &Kubernetes) -> Result<()> {
    cluster.reinstall(&observed()?)?;
    let shown = clients_show_flows(cluster);
    // Also after a failure: the next test expects the manifest as it is shipped.
    cluster.reinstall(&flannel::manifest()?)?;
    shown
}
