//! The observer API of Hubble on a node: to our own client, and to the real CLI where
//! `FLANNEL_HUBBLE` names it.

mod cost;
#[path = "../../../support/observer.rs"]
mod observer;
mod relay;

use std::{
    env, fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_hubble::{
    flow::{DropReason, Flow, FlowFilter, Protocol, Verdict},
    observer::{
        Content, GetFlowsRequest, GetFlowsResponse, ServerStatusRequest, ServerStatusResponse,
    },
};
use flannel_tests::{
    Agent, ChildGuard, Pair, agent::pins::monitor_lease, eventually, fast::fast_pair, not_run,
};

/// Sends a VXLAN header with the VNI of the lab.
pub(super) const FORGED: &str =
    r"printf '\010\0\0\0\0\0\001\0xxxxxxxxxxxxxx' > /dev/udp/192.168.1.11/8472";

pub(super) const SOCKET: &str = "/run/flannel/hubble.sock";

fn pair(name: &str) -> Result<Pair> {
    fast_pair(
        name,
        &[
            "--hubble-socket=/run/flannel/hubble.sock",
            "--hosts-file=/run/flannel/hosts",
        ],
    )
}

fn socket(agent: &Agent) -> PathBuf {
    agent.node().outside_path(SOCKET)
}

fn observer_status(agent: &Agent) -> Result<ServerStatusResponse> {
    let mut found = None;
    observer::ask(
        &socket(agent),
        "observer.Observer/ServerStatus",
        &ServerStatusRequest {},
        |status| {
            found = Some(status);
            true
        },
    )?;
    found.context("no status")
}

/// Flows that the observer sends, until one of them is the wanted one.
pub(super) fn first_flow(
    socket: &Path,
    request: &GetFlowsRequest,
    is_wanted: impl Fn(&Flow) -> bool,
) -> Result<Flow> {
    let (mut found, mut others) = (None, Vec::new());
    observer::ask(
        socket,
        "observer.Observer/GetFlows",
        request,
        |response: GetFlowsResponse| {
            match response.content {
                Some(Content::Flow(flow)) if is_wanted(&flow) => found = Some(*flow),
                Some(Content::Flow(flow)) => others.push(format!("{flow:?}")),
                _ => {}
            }
            found.is_some()
        },
    )
    .with_context(|| format!("flows so far:\n{}", others.join("\n")))?;
    found.with_context(|| format!("only these flows:\n{}", others.join("\n")))
}

fn is_tcp_between(flow: &Flow, source: &str, destination: &str) -> bool {
    let is_tcp = flow
        .l4
        .is_some_and(|l4| matches!(l4.protocol, Some(Protocol::Tcp(_))));
    is_tcp
        && flow
            .ip
            .as_ref()
            .is_some_and(|ip| ip.source == source && ip.destination == destination)
}

/// Known flows are there at once, for a client that does not follow.
fn shows_known_flows(pair: &Pair) -> Result<()> {
    let (near, far) = (pair.near.ip().to_string(), pair.far.ip().to_string());
    let request = GetFlowsRequest {
        number: 100,
        ..GetFlowsRequest::default()
    };
    let is_replayed = |flow: &Flow| {
        is_tcp_between(flow, &near, &far) && flow.summary.starts_with("TCP; replayed: ")
    };
    let flow = first_flow(&socket(&pair.sender), &request, is_replayed)?;
    let name = pair
        .sender
        .node()
        .sh("cat /proc/sys/kernel/hostname")?
        .stdout;
    ensure!(
        flow.verdict() == Verdict::Forwarded && flow.node_name == name.trim(),
        "{flow:?}"
    );
    ensure!(
        flow.source
            .as_ref()
            .is_some_and(|end| end.identity > 65_535),
        "a pod: {flow:?}"
    );
    let status = observer_status(&pair.sender)?;
    ensure!(
        status.num_flows > 0 && status.max_flows == 4095 && status.num_connected_nodes == Some(1),
        "{status:?}"
    );
    Ok(())
}

/// Tunnel packets of a pod to its node, which the guard drops, until the test ends.
fn forged_tunnel_packets(pair: &Pair) -> Result<ChildGuard> {
    let send = format!("while :; do {FORGED}; sleep 0.1; done");
    pair.near.spawn("forged", ["bash", "-c", &send])
}

/// A drop comes to a follower that filters by verdict, with both reasons and the host's name.
fn follows_drops(pair: &Pair) -> Result<()> {
    let _forged = forged_tunnel_packets(pair)?;
    let dropped = FlowFilter {
        verdict: vec![Verdict::Dropped.into()],
        ..FlowFilter::default()
    };
    let request = GetFlowsRequest {
        follow: true,
        whitelist: vec![dropped],
        ..GetFlowsRequest::default()
    };
    let flow = first_flow(&socket(&pair.sender), &request, |_| true)?;
    ensure!(
        flow.drop_reason_desc() == DropReason::EncapsulationTrafficIsProhibited,
        "{flow:?}"
    );
    ensure!(flow.summary == "UDP; refused_pod_tunnel", "{flow:?}");
    ensure!(
        flow.ip
            .as_ref()
            .is_some_and(|ip| ip.source == pair.near.ip().to_string()),
        "{flow:?}"
    );
    ensure!(flow.destination_names == ["near.example.org"], "{flow:?}");
    Ok(())
}

#[test]
fn clients_get_flows_and_drops_and_nothing_runs_without_them() -> Result<()> {
    let pair = pair("hubble")?;
    fs::write(
        pair.sender.node().outside_path("/run/flannel/hosts"),
        "192.168.1.11 near.example.org\n",
    )?;
    let (agent, node) = (&pair.sender, pair.sender.node());
    let file = fs::symlink_metadata(socket(agent))?;
    ensure!(
        file.file_type().is_socket() && file.mode() & 0o777 == 0o660,
        "mode {:o}",
        file.mode()
    );
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    ensure!(
        monitor_lease(node)? == 0,
        "the programs report although no client has come"
    );
    let status = observer_status(agent)?;
    ensure!(
        status.num_flows == 0 && status.seen_flows == 0,
        "the status alone starts nothing: {status:?}"
    );
    shows_known_flows(&pair).context("known flows")?;
    follows_drops(&pair).context("drops")
}

/// Output of the real CLI on the node.
fn hubble(pair: &Pair, binary: &str, args: &[&str]) -> Result<String> {
    let server = format!("--server=unix://{SOCKET}");
    let argv = [
        &["env", "HOME=/run", binary],
        args,
        &[&server, "--timeout=20s"],
    ]
    .concat();
    let output = pair.sender.node().run(argv)?;
    Ok(output.stdout)
}

#[test]
fn the_real_cli_shows_status_nodes_flows_and_drops() -> Result<()> {
    let Ok(binary) = env::var("FLANNEL_HUBBLE") else {
        not_run(
            "the CLI of Hubble",
            "FLANNEL_HUBBLE does not name its binary",
        );
        return Ok(());
    };
    let pair = pair("hubblecli")?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    let status = hubble(&pair, &binary, &["status"])?;
    ensure!(
        status.contains("Healthcheck (via unix:///run/flannel/hubble.sock): Ok"),
        "{status}"
    );
    ensure!(status.contains("/4,095"), "{status}");
    let nodes = hubble(&pair, &binary, &["list", "nodes"])?;
    ensure!(nodes.contains("Connected"), "{nodes}");
    let (near, far) = (pair.near.ip().to_string(), pair.far.ip().to_string());
    let _forged = forged_tunnel_packets(&pair)?;
    eventually("flows of both kinds", Duration::from_secs(30), || {
        let forwarded = hubble(
            &pair,
            &binary,
            &["observe", "--last=50", "--protocol=tcp", "--from-ip", &near],
        )?;
        ensure!(
            forwarded.contains(&far) && forwarded.contains("FORWARDED (TCP; replayed: "),
            "{forwarded}"
        );
        let dropped = hubble(
            &pair,
            &binary,
            &["observe", "--last=50", "--verdict=DROPPED"],
        )?;
        ensure!(
            dropped.contains("DROPPED (UDP; refused_pod_tunnel)"),
            "{dropped}"
        );
        ensure!(!dropped.contains("FORWARDED"), "{dropped}");
        let json = hubble(
            &pair,
            &binary,
            &["observe", "--last=50", "--output=json", "--verdict=DROPPED"],
        )?;
        ensure!(
            json.contains(r#""drop_reason_desc":"ENCAPSULATION_TRAFFIC_IS_PROHIBITED""#),
            "{json}"
        );
        println!("{status}{nodes}{forwarded}{dropped}");
        Ok(())
    })
}
