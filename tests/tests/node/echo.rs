//! Echo requests to peers: status and metrics of peers that answer, that stop, and that never did.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Node, TwoNodes,
    cluster::{HOST_GW, VXLAN, config, topology::Stack},
    eventually,
    stock::mixed::Mixed,
};
use serde_json::Value;

const EACH_SECOND: &str = "--peer-echo-interval=1";
/// Three lost requests a second apart, on a machine that is busy with something else.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits until the peer of this number, by subnet, is in this state.
fn wait_state(agent: &Agent, peer: usize, state: &str) -> Result<Value> {
    eventually(state, LIMIT, || {
        let status = agent.status()?;
        let echo = &status["peers"][peer]["echo"];
        ensure!(echo["state"] == state, "{}", status["peers"]);
        Ok(echo.clone())
    })
}

fn pair(name: &str, config: &str) -> Result<(TwoNodes, Agent, Agent)> {
    let nodes = TwoNodes::new(name, config)?;
    let options = nodes
        .options()?
        .flag(EACH_SECOND)
        .flag("--metrics-port=8082");
    let (a, b) = (
        nodes.a.ready_agent(options.clone())?,
        nodes.b.ready_agent(options)?,
    );
    a.wait_peers(1)?;
    b.wait_peers(1)?;
    Ok((nodes, a, b))
}

#[test]
fn peers_answer_through_the_tunnel_in_every_mode_and_family() -> Result<()> {
    let nodes = TwoNodes::with(
        "echo-modes",
        Stack::Dual,
        &config(Stack::Dual, r#"{"Type":"vxlan"}"#),
    )?;
    let options = nodes.options()?.flag(EACH_SECOND);
    let (a, b) = (
        nodes.a.ready_agent(options.clone())?,
        nodes.b.ready_agent(options)?,
    );
    for mode in ["kernel", "encap", "fast"] {
        a.set_mode(mode)?;
        b.set_mode(mode)?;
        let before = crossed(&nodes.a)?;
        for agent in [&a, &b] {
            // One entry for each family.
            for peer in [0, 1] {
                let echo = wait_state(agent, peer, "answering")?;
                ensure!(
                    echo["round_trip_us"].as_u64().is_some_and(|time| time > 0),
                    "{mode}: {echo}"
                );
                ensure!(
                    echo["last_reply"].is_u64() && echo["error"].is_null(),
                    "{mode}: {echo}"
                );
            }
        }
        eventually("requests and replies on the wire", LIMIT, || {
            let now = crossed(&nodes.a)?;
            ensure!(
                now >= before + 8,
                "{now} tunnel packets in mode {mode}, {before} before"
            );
            Ok(())
        })?;
    }
    Ok(())
}

/// Packets that the tunnel devices of a node received.
fn crossed(node: &Node) -> Result<u64> {
    ["flannel.1", "flannel-v6.1"]
        .into_iter()
        .map(|device| node.device_counter(device, "rx_packets"))
        .sum()
}

#[test]
fn peers_without_a_tunnel_answer_at_their_public_address() -> Result<()> {
    let (_nodes, a, _b) = pair("echo-gw", &config(Stack::V4, HOST_GW))?;
    let echo = wait_state(&a, 0, "answering")?;
    assert_eq!(echo["address"], "192.168.1.12");
    Ok(())
}

#[test]
fn a_stock_node_answers() -> Result<()> {
    let mixed = Mixed::new("echo-stock", Stack::V4, &[EACH_SECOND])?;
    let echo = wait_state(&mixed.agent, 0, "answering")?;
    assert_eq!(echo["address"], "10.244.8.0");
    Ok(())
}

#[test]
fn a_peer_that_dies_is_silent_until_it_is_back() -> Result<()> {
    let (nodes, a, _b) = pair("echo-dies", VXLAN)?;
    wait_state(&a, 0, "answering")?;
    // The cable is a pair of devices: with one end down the other has no carrier.
    nodes.b.nft(
        "table inet dead {\nchain in {\ntype filter hook prerouting priority -400;\ndrop\n}\n}\n",
    )?;
    let echo = wait_state(&a, 0, "silent")?;
    ensure!(
        echo["lost"].as_u64().is_some_and(|lost| lost >= 3),
        "{echo}"
    );
    let text = a.cli_any(&["status"])?.stdout;
    ensure!(
        text.contains("at 192.168.1.12 has not answered for "),
        "{text}"
    );
    ensure!(text.contains("1 peer without an answer"), "{text}");
    a.wait_log(&[
        "peers that answered echo requests do not any more",
        " at 192.168.1.12",
    ])?;
    let (_, metrics) = nodes.a.http_get(8082, "/metrics")?;
    ensure!(
        metrics.contains("\nflannel_echo_peers{state=\"silent\"} 1\n"),
        "{metrics}"
    );
    // The store is on the dead node, and its silence is noticed at about the same time.
    let status = a.status()?;
    ensure!(
        status["ready"] == status["store"]["in_sync"],
        "a dead peer does not make this node unready: {status}"
    );
    nodes.b.nft("delete table inet dead\n")?;
    wait_state(&a, 0, "answering")?;
    a.wait_log(&["peers answer echo requests again, or have left"])?;
    Ok(())
}

/// A rule that drops echo requests at this hook.
fn drop_requests(node: &Node, hook: &str) -> Result<()> {
    node.sh("nft add table ip f")?;
    node.sh(&format!(
        "nft add chain ip f {hook} {{ type filter hook {hook} priority 0 ; }}"
    ))?;
    node.sh(&format!(
        "nft add rule ip f {hook} icmp type echo-request drop"
    ))?;
    Ok(())
}

#[test]
fn a_peer_whose_firewall_drops_icmp_never_answers() -> Result<()> {
    let nodes = TwoNodes::new("echo-filtered", VXLAN)?;
    drop_requests(&nodes.b, "input")?;
    let options = nodes.options()?.flag(EACH_SECOND);
    let (a, b) = (
        nodes.a.ready_agent(options.clone())?,
        nodes.b.ready_agent(options)?,
    );
    let echo = wait_state(&a, 0, "never")?;
    ensure!(echo["last_reply"].is_null(), "{echo}");
    wait_state(&b, 0, "answering")?;
    Ok(())
}

#[test]
fn what_cannot_be_sent_says_why() -> Result<()> {
    let (nodes, a, _b) = pair("echo-refused", VXLAN)?;
    wait_state(&a, 0, "answering")?;
    drop_requests(&nodes.a, "output")?;
    let echo = wait_state(&a, 0, "silent")?;
    ensure!(
        echo["error"]
            .as_str()
            .is_some_and(|error| error.contains("not permitted")),
        "{echo}"
    );
    Ok(())
}

#[test]
fn without_the_right_to_raw_sockets_a_node_says_so_and_serves() -> Result<()> {
    let nodes = TwoNodes::new("echo-unprivileged", VXLAN)?;
    let options = nodes.options()?.flag(EACH_SECOND);
    let a = nodes.a.ready_agent(
        options
            .confined_by(None)
            .wrapped_by("setpriv --bounding-set=-net_raw"),
    )?;
    let _b = nodes.b.ready_agent(nodes.options()?)?;
    a.wait_peers(1)?;
    let status = a.status()?;
    let reason = status["echo"]["reason"].as_str().context("a reason")?;
    ensure!(
        reason.contains("no raw socket for ICMP over IPv4") && reason.contains("not permitted"),
        "{reason}"
    );
    ensure!(status["peers"][0]["echo"].is_null(), "{}", status["peers"]);
    Ok(())
}

#[test]
fn no_request_is_sent_where_none_is_wanted() -> Result<()> {
    let nodes = TwoNodes::new("echo-off", VXLAN)?;
    let [a, _b] = nodes.agents()?;
    a.wait_peers(1)?;
    let status = a.status()?;
    assert_eq!(
        (&status["echo"]["interval"], &status["peers"][0]["echo"]),
        (&Value::from(0), &Value::Null)
    );
    assert_eq!(echo_thread(&a)?, None);
    Ok(())
}

/// The raw socket gets a copy of whatever ICMP arrives, but for its filter.
#[test]
fn a_flood_of_pings_does_not_wake_the_agent() -> Result<()> {
    let (nodes, a, _b) = pair("echo-flood", VXLAN)?;
    wait_state(&a, 0, "answering")?;
    let switches = || -> Result<u64> { echo_thread(&a)?.context("the thread") };
    let before = switches()?;
    let flood = "ping -q -f -c 20000 192.168.1.11"
        .split(' ')
        .map(str::to_owned);
    nodes.b.command(flood).limit(Duration::from_mins(2)).run()?;
    let woken = switches()? - before;
    ensure!(woken < 2_000, "woken {woken} times by 20,000 pings");
    Ok(())
}

/// Number of times that the thread of the echo requests has slept; `None` without one.
fn echo_thread(agent: &Agent) -> Result<Option<u64>> {
    let pid = agent.status()?["pid"].as_u64().context("a process id")?;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.trim() != "echo" {
            continue;
        }
        let status = fs::read_to_string(task.join("status"))?;
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .context("a count")?;
        return Ok(Some(count.trim().parse()?));
    }
    Ok(None)
}
