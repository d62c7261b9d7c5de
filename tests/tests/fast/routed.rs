//! Mode `fast` with backends that route packets by a tunnel device without Ethernet, or by routes
//! of others: flows are replayed both ways, shown, and discarded with the mode.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Pair, Pod,
    cluster::topology::Stack,
    eventually,
    fast::{Family, FastLab, fast_backend},
    kernel::hooks::{Side, programs},
    not_run,
};
use serde_json::{Value, json};

use super::talks::talks;

/// The programs on the tunnel device: on ingress, and on egress.
const ON_TUNNEL: [&str; 2] = ["from_l3_tunnel", "to_l3_tunnel"];
/// Those on the external interface where it has no tunnel.
const ON_EXTERNAL: [&str; 2] = ["from_underlay", "to_underlay"];

fn on_device(agent: &Agent, device: &str) -> Result<Vec<String>> {
    let node = agent.node();
    Ok([
        programs(node, device, Side::Ingress)?,
        programs(node, device, Side::Egress)?,
    ]
    .concat())
}

/// Both agents are in mode `fast`, and every packet of a stream arrives while both nodes replay:
/// one by `from_pod`, the other by `receiver`.
fn replays(pair: &Pair, receiver: &str) -> Result<()> {
    let replayed = || -> Result<[u64; 2]> {
        Ok([
            pair.sender.counted("from_pod", "replayed")?,
            pair.receiver.counted(receiver, "replayed")?,
        ])
    };
    for agent in [&pair.sender, &pair.receiver] {
        let status = agent.status()?;
        ensure!(
            status["mode"]["effective"] == "fast" && status["mode"]["reason"].is_null(),
            "{status}"
        );
    }
    let before = replayed()?;
    let run = pair.stream(500, Duration::from_mins(1))?;
    eventually("replayed packets", Duration::from_secs(30), || {
        let now = replayed()?;
        let more = [now[0] - before[0], now[1] - before[1]];
        let stats = || pair.receiver.cli(&["maps", "dump", "stats"]);
        ensure!(
            more.iter().all(|more| *more > 1_000),
            "{more:?}; on the node of the receiver: {}",
            stats()?.stdout
        );
        Ok(())
    })?;
    run.stop()?.expect_complete()
}

#[test]
fn flows_are_replayed_into_wireguard_devices_and_out_of_them() -> Result<()> {
    let lab = FastLab::of("wg-flows", r#"{"Type":"wireguard"}"#, &[])?;
    let _talks = talks(&lab)?;
    let agent = &lab.agents[0];
    for agent in &lab.agents {
        let status = agent.status()?;
        ensure!(
            status["mode"]["effective"] == "fast" && status["mode"]["reason"].is_null(),
            "{status}"
        );
        ensure!(
            status["fast"]["outside"] == false,
            "no program sees the outside: {status}"
        );
        for program in ["from_pod", "from_l3_tunnel"] {
            ensure!(
                agent.counted(program, "replayed")? > 0,
                "{program} replayed nothing"
            );
        }
    }
    for device in ["flannel-wg", "flannel-wg-v6"] {
        assert_eq!(on_device(agent, device)?, ON_TUNNEL, "{device}");
    }
    assert_eq!(
        on_device(agent, "eth0")?,
        [""; 0],
        "encrypted packets are the kernel's"
    );
    let entry = agent.peer_entry("192.168.1.12")?;
    ensure!(
        entry["flags"] == json!(["direct"]) && entry["oif_name"] == "flannel-wg",
        "{entry}"
    );
    agree(agent, 2)?;
    explained(agent, &lab.near, &lab.far)?;
    lab.set_mode("kernel")?;
    assert_eq!(
        on_device(agent, "flannel-wg")?,
        [""; 0],
        "only in mode fast"
    );
    Ok(())
}

/// No peers are known, so the pods of other nodes are hosts outside.
#[test]
fn with_alloc_flows_are_replayed_where_routes_of_others_lead() -> Result<()> {
    let lab = FastLab::allocated("alloc-flows")?;
    let _talks = talks(&lab)?;
    for agent in &lab.agents {
        let status = agent.status()?;
        ensure!(status["mode"]["effective"] == "fast", "{status}");
        ensure!(
            status["fast"]["outside"] == true && status["peers"] == json!([]),
            "{status}"
        );
        for program in ["from_pod", "from_underlay"] {
            ensure!(
                agent.counted(program, "replayed")? > 0,
                "{program} replayed nothing"
            );
        }
        let flows = agent.cli(&["maps", "dump", "flows"])?.stdout;
        ensure!(flows.contains(" outside "), "{flows}");
    }
    lab.set_mode("kernel")?;
    assert_eq!(
        on_device(&lab.agents[0], "eth0")?,
        [""; 0],
        "only in mode fast"
    );
    Ok(())
}

fn agree(agent: &Agent, peers: usize) -> Result<()> {
    let text = agent.cli(&["maps", "dump", "--diff"])?.stdout;
    let wanted = match peers {
        1 => "1 peer".to_owned(),
        peers => format!("{peers} peers"),
    };
    ensure!(
        text == format!("leases, maps and kernel agree about {wanted}\n"),
        "{text}"
    );
    Ok(())
}

/// The way there and back of a packet of no known flow.
fn explained(agent: &Agent, near: &Pod, far: &Pod) -> Result<()> {
    for family in Family::ALL {
        let ends = [family.of(near)?.to_string(), family.of(far)?.to_string()];
        for [source, destination] in [[&ends[0], &ends[1]], [&ends[1], &ends[0]]] {
            let args = [
                "explain",
                source,
                destination,
                "--proto=udp",
                "--sport=9",
                "--dport=9",
                "-o",
                "json",
            ];
            let story = agent.cli_json(&args)?;
            ensure!(
                story["verdict"]["reaches"] == true && story["verdict"]["way"] == "routed",
                "{story:#}"
            );
            let topics = story["steps"]
                .as_array()
                .context("no steps")?
                .iter()
                .map(|step| step["topic"].clone());
            let of_vxlan = |topic: &Value| {
                ["neighbour", "fdb", "path", "guard"]
                    .iter()
                    .any(|of| topic == of)
            };
            ensure!(!topics.clone().any(|topic| of_vxlan(&topic)), "{story:#}");
        }
    }
    Ok(())
}

/// Packets come out of its device in a system call of the process, so flows wait for the agent.
#[test]
fn flows_are_replayed_into_the_device_of_the_backend_udp_and_out_of_it() -> Result<()> {
    let pair = fast_backend("udp-flows", Stack::V4, r#"{"Type":"udp"}"#)?;
    assert_eq!(on_device(&pair.sender, "flannel0")?, ON_TUNNEL);
    replays(&pair, "from_l3_tunnel")?;
    agree(&pair.sender, 1)
}

#[test]
fn flows_are_replayed_into_an_ipip_device_and_out_of_it() -> Result<()> {
    // The directory is there once the module is, and always if it is built in.
    if !Path::new("/sys/module/ipip").exists() {
        not_run(
            "mode fast with the backend ipip",
            "the module ipip is not loaded",
        );
        return Ok(());
    }
    let pair = fast_backend("ipip-flows", Stack::V4, r#"{"Type":"ipip"}"#)?;
    assert_eq!(on_device(&pair.sender, "flannel.ipip")?, ON_TUNNEL);
    let entry = pair.sender.peer_entry("192.168.1.12")?;
    ensure!(
        entry["flags"] == json!(["direct", "keyed"]) && entry["oif_name"] == "flannel.ipip",
        "{entry}"
    );
    replays(&pair, "from_l3_tunnel")?;
    agree(&pair.sender, 1)
}

#[test]
fn flows_are_replayed_where_routes_of_commands_lead_by_the_external_interface() -> Result<()> {
    let commands = json!({
        "Type": "extension",
        "SubnetAddCommand": ["ip", "route", "replace", "$SUBNET", "via", "$PUBLIC_IP"],
        "SubnetRemoveCommand": ["ip", "route", "delete", "$SUBNET"],
    });
    let pair = fast_backend("ext-flows", Stack::V4, &commands.to_string())?;
    assert_eq!(on_device(&pair.sender, "eth0")?, ON_EXTERNAL);
    replays(&pair, "from_underlay")?;
    agree(&pair.sender, 1)
}
