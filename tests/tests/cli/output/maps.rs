//! `maps dump`.

use anyhow::{Context as _, Result};
use flannel_tests::{Agent, StockNode, TwoNodes, cluster::VXLAN};
use serde_json::Value;

const PEER: &str = "10.244.9.0/24";

/// A node with the subnet 10.244.85.0/24, one peer, and packets counted on the way to it.
fn node() -> Result<(TwoNodes, Agent)> {
    let pair = TwoNodes::new("maps", VXLAN)?;
    let own = StockNode::vxlan(85, "192.168.1.11", "02:00:00:00:00:05");
    pair.etcd.put(&own.key(), &own.value(), None)?;
    StockNode::vxlan(9, "192.168.1.12", "02:00:00:00:00:09").put(&pair.etcd)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    agent.wait_peers(1)?;
    pair.a
        .command([
            "ping",
            "-n",
            "-c",
            "3",
            "-i",
            "0.01",
            "-W",
            "1",
            "10.244.9.7",
        ])
        .any_code()
        .run()?;
    Ok((pair, agent))
}

/// The same questions to a node whose agent lives, and to one whose agent was killed.
fn alive_and_dead(ask: impl Fn(&Agent) -> Result<()>) -> Result<()> {
    let (_pair, agent) = node()?;
    ask(&agent).context("alive")?;
    agent.kill9()?;
    ask(&agent).context("dead")
}

fn table(agent: &Agent, map: &str) -> Result<Vec<String>> {
    Ok(agent
        .cli(&["maps", "dump", map])?
        .stdout
        .lines()
        .map(str::to_owned)
        .collect())
}

fn json(agent: &Agent, map: &str) -> Result<Value> {
    agent.cli_json(&["maps", "dump", map, "-o", "json"])
}

const COLUMNS: [&str; 10] = [
    "SUBNET",
    "VTEP",
    "VTEP-MAC",
    "NEXT-HOP",
    "OIF",
    "MTU",
    "PATH",
    "SEEN",
    "TO-BYTES",
    "FROM-BYTES",
];

fn words(line: &str) -> Vec<String> {
    line.split_ascii_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_peers_are_shown_with_and_without_an_agent() -> Result<()> {
    alive_and_dead(|agent| {
        let lines = table(agent, "peers")?;
        assert_eq!(words(&lines[0]), COLUMNS);
        let index = agent
            .node()
            .sh("cat /sys/class/net/eth0/ifindex")?
            .stdout
            .trim()
            .to_owned();
        let row = words(&lines[1]);
        let index = format!("({index})");
        assert_eq!(
            row[..8],
            [
                PEER,
                "192.168.1.12",
                "02:00:00:00:00:09",
                "192.168.1.12",
                "eth0",
                &index,
                "1500",
                "plain"
            ]
        );
        assert_eq!(lines.len(), 2, "{lines:?}");

        let document = json(agent, "peers")?;
        assert_eq!(
            document.as_object().map(serde_json::Map::len),
            Some(2),
            "{document}"
        );
        let peer = &document["peers"][0];
        // Three echo requests of 98 bytes in their frames, and those of the agent.
        let [packets, bytes] =
            ["to_packets", "to_bytes"].map(|key| peer[key].as_u64().unwrap_or_default());
        assert!(packets >= 3 && bytes >= 294, "{peer}");
        assert_eq!(
            (&peer["from_packets"], &peer["from_bytes"]),
            (&Value::from(0), &Value::from(0)),
            "no reply"
        );
        assert_eq!(row.last().map(String::as_str), Some("0"), "{lines:?}");
        for (name, value) in [
            ("index", Value::from(9)),
            ("subnet", PEER.into()),
            ("vtep", "192.168.1.12".into()),
            ("vtep_mac", "02:00:00:00:00:09".into()),
            ("next_hop", "192.168.1.12".into()),
            ("oif_name", "eth0".into()),
            ("mtu", 1500.into()),
            ("flags", vec!["plain"].into()),
        ] {
            assert_eq!(peer[name], value, "{name} of {peer}");
        }
        Ok(())
    })
}

#[test]
fn the_counters_are_shown_with_their_meaning() -> Result<()> {
    alive_and_dead(|agent| {
        let lines = table(agent, "stats")?;
        assert!(lines[0].starts_with("PROGRAM"), "{lines:?}");
        let seen = lines
            .iter()
            .find(|line| line.starts_with("to_underlay") && line.contains("path_seen"));
        assert!(
            seen.is_some_and(|line| line.ends_with("the path is validated.")),
            "{lines:?}"
        );
        let document = json(agent, "stats")?;
        let rows = document["stats"].as_array().context("stats")?;
        let row = rows
            .iter()
            .find(|row| row["program"] == "to_underlay" && row["reason"] == "path_seen");
        let row = row.with_context(|| document.to_string())?;
        assert!(
            row["packets"].as_u64() > Some(0) && row["bytes"].as_u64() > Some(0),
            "{row}"
        );
        assert!(
            rows.iter().all(|row| row["packets"].as_u64() > Some(0)),
            "only what was counted: {document}"
        );
        Ok(())
    })
}

#[test]
fn the_nodes_own_data_are_shown_with_the_heartbeat() -> Result<()> {
    alive_and_dead(|agent| {
        let text = agent.cli(&["maps", "dump", "config"])?.stdout;
        for line in [
            "mode                fast\n",
            "network             10.244.0.0 in 256 subnets of /24\n",
            "s ago\n",
        ] {
            assert!(text.contains(line), "{line} in:\n{text}");
        }
        let config = json(agent, "config")?["config"].clone();
        let mac = std::fs::read_to_string(
            agent
                .node()
                .outside_path("/sys/class/net/flannel.1/address"),
        )?;
        for (name, value) in [
            ("mode", Value::from("fast")),
            ("choice", Value::Null),
            ("valid", true.into()),
            ("heartbeat_fresh", true.into()),
            ("network", "10.244.0.0".into()),
            ("subnet_len", 24.into()),
            ("subnets", 256.into()),
            ("vtep", "192.168.1.11".into()),
            ("vtep_mac", mac.trim().into()),
            ("vni", 1.into()),
            ("port", 8472.into()),
            ("source_ports", "32768-60999".into()),
            ("tunnel_interface", "flannel.1".into()),
            ("underlay_interface", "eth0".into()),
        ] {
            assert_eq!(config[name], value, "{name} of {config}");
        }
        Ok(())
    })
}

#[test]
fn a_dump_of_all_has_every_map() -> Result<()> {
    alive_and_dead(|agent| {
        let document = json(agent, "all")?;
        let members: Vec<&str> = document
            .as_object()
            .context("an object")?
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            members,
            ["schema_version", "config", "peers", "stats", "pods"]
        );
        let text = agent.cli(&["maps", "dump", "all"])?.stdout;
        for part in ["\nheartbeat ", "\n\nSUBNET ", "\n\nPROGRAM "] {
            assert!(text.contains(part), "{part:?} in:\n{text}");
        }
        Ok(())
    })
}

#[test]
fn a_wrong_pin_root_is_named_with_what_to_do() -> Result<()> {
    let (pair, agent) = node()?;
    let binary = pair.options()?.binary.display().to_string();
    let run = |command: &[&str], code| {
        let argv = [
            &[binary.as_str()],
            command,
            &["--bpf-pin-root=/sys/fs/bpf/nope"],
        ]
        .concat();
        pair.a.command(argv).expect_code(code).run()
    };
    // A running agent says where its pins are.
    assert!(
        run(&["maps", "dump", "peers"], 0)?
            .stdout
            .contains("10.244.9.0/24")
    );
    agent.kill9()?;
    for command in [
        ["maps", "dump", "peers"],
        ["maps", "dump", "all"],
        ["datapath", "set", "kernel"],
    ] {
        let output = run(&command, 2)?;
        assert_eq!(output.stdout, "");
        assert_eq!(
            output.stderr,
            "error: nothing is pinned below /sys/fs/bpf/nope: no agent with eBPF has run here, or \
             it was cleaned up, or it \
             has another --bpf-pin-root (then give the same one here)\n"
        );
    }
    assert!(
        agent.cli(&["datapath", "show"])?.stdout.starts_with("fast"),
        "nothing was set"
    );
    Ok(())
}
