//! `cleanup`: says what it would do, refuses while an agent lives, then leaves the node as it was
//! before the agent, with everything of others in its place.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Node, ThreeNodes, TunnelState,
    agent::snapshot::Snapshot,
    cluster, eventually,
    kernel::hooks::{self, Side},
};

const SUBNET_ENV: &str = "/run/flannel/subnet.env";

/// A node with an agent, and how it was before.
struct Cleaned {
    before: Snapshot,
    files: BTreeSet<String>,
    agent: Agent,
    net: ThreeNodes,
}

impl Cleaned {
    /// Peers of both kinds: `b` by a direct route, `c` through the tunnel.
    fn new(name: &str, attach: &str, foreign: impl FnOnce(&Node) -> Result<()>) -> Result<Self> {
        let net = ThreeNodes::new(name, cluster::DIRECT_ROUTING)?;
        foreign(&net.a)?;
        let (before, files) = (Snapshot::of(&net.a)?, files(&net.a)?);
        let options = net.options()?.flag(attach);
        let agent = net.a.agent(options.clone())?;
        for node in [&net.b, &net.c] {
            node.agent(options.clone())?.wait_ready()?;
        }
        agent.wait_ready()?;
        eventually(
            "two peers and their programs",
            Duration::from_secs(10),
            || {
                let status = agent.status()?;
                ensure!(
                    status["peers"]
                        .as_array()
                        .is_some_and(|peers| peers.len() == 2),
                    "{status}"
                );
                let wrong = hooks::misplaced(&net.a)?;
                ensure!(wrong.is_empty(), "{wrong:?}");
                Ok(())
            },
        )?;
        Ok(Self {
            before,
            files,
            agent,
            net,
        })
    }

    fn changes(&self) -> Result<String> {
        Ok(self.before.changes(&Snapshot::of(&self.net.a)?))
    }

    /// Returns the files in `/run` that were added or removed since the lab was set up.
    fn new_files(&self) -> Result<Vec<String>> {
        Ok(files(&self.net.a)?
            .symmetric_difference(&self.files)
            .cloned()
            .collect())
    }

    /// Cleans up, and requires everything to be as before; programs detach a moment after their
    /// pins are gone.
    fn clean(&self, args: &[&str], left: &[&str]) -> Result<String> {
        let output = self.agent.cli(&[&["cleanup"], args].concat())?;
        eventually("a clean node", Duration::from_secs(3), || {
            let changes = self.changes()?;
            ensure!(changes.is_empty(), "{changes}");
            Ok(())
        })?;
        assert_eq!(self.new_files()?, left);
        Ok(output.stdout)
    }
}

/// Everything below `/run` of a node.
fn files(node: &Node) -> Result<BTreeSet<String>> {
    fn walk(dir: &Path, name: &str, found: &mut BTreeSet<String>) -> Result<()> {
        for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
            let entry = entry?;
            let name = format!("{name}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                walk(&entry.path(), &name, found)?;
            }
            found.insert(name);
        }
        Ok(())
    }
    let mut found = BTreeSet::new();
    walk(&node.outside_path("/run"), "/run", &mut found)?;
    Ok(found)
}

/// Routes, devices, neighbours and a filter that look a little like ours.
fn things_of_others(node: &Node) -> Result<()> {
    for line in [
        "ip link add vxlan7 type vxlan id 7 dev eth0 dstport 4789",
        "ip link set vxlan7 up",
        "ip address add 10.99.0.1/24 dev vxlan7",
        "ip neigh add 10.99.0.2 lladdr 02:00:00:00:00:02 nud permanent dev vxlan7",
        "bridge fdb add 02:00:00:00:00:02 dst 192.168.2.13 self permanent dev vxlan7",
        "ip route add 10.77.0.0/24 via 192.168.1.12",
        "ip route add 10.244.200.0/24 via 192.168.1.12 proto static",
        "ip route add 10.78.0.0/24 via 192.168.1.12 table 100",
        "ip rule add from 10.78.0.0/24 table 100",
    ] {
        node.sh(line)?;
    }
    Ok(())
}

#[test]
fn a_dry_run_changes_nothing_and_lists_what_it_would_do() -> Result<()> {
    let node = Cleaned::new("dry", "--attach=auto", |_| Ok(()))?;
    node.agent.sigterm_and_wait()?;
    let (state, files_before) = (Snapshot::of(&node.net.a)?, files(&node.net.a)?);
    let planned = node.agent.cli(&["cleanup", "--dry-run"])?.stdout;
    assert_eq!(state.changes(&Snapshot::of(&node.net.a)?), "");
    assert_eq!(files(&node.net.a)?, files_before);
    for part in [
        "would remove the pins below /sys/fs/bpf/flannel/v2",
        "would remove the route 10.244.",
        "via 192.168.1.12",
        "would remove the device flannel.1",
    ] {
        assert!(planned.contains(part), "{part} in:\n{planned}");
    }
    let did = node.clean(&[], &["/run/flannel", SUBNET_ENV])?;
    let steps: Vec<_> = did
        .lines()
        .filter_map(|line| line.rsplit_once(": "))
        .collect();
    let done: Vec<_> = steps.iter().map(|(step, _)| (*step).to_owned()).collect();
    let would: Vec<_> = planned
        .lines()
        .map(|line| line.trim_start_matches("would ").to_owned())
        .collect();
    assert_eq!(done, would);
    // It holds subnet.env.
    let kept: Vec<_> = steps
        .iter()
        .filter(|(_, outcome)| *outcome != "done")
        .collect();
    assert_eq!(
        kept,
        [&(
            "remove /run/flannel if it is empty",
            "kept, it is not empty or a mount point"
        )]
    );
    Ok(())
}

#[test]
fn cleanup_refuses_while_an_agent_lives() -> Result<()> {
    let node = Cleaned::new("alive", "--attach=auto", |_| Ok(()))?;
    let state = Snapshot::of(&node.net.a)?;
    let refusal = node
        .agent
        .cli(&["cleanup"])
        .expect_err("an agent lives")
        .to_string();
    assert!(
        refusal.contains("exit status 2") && refusal.contains("/run/flannel is in use by process "),
        "{refusal}"
    );
    assert!(refusal.contains("/run/flannel"), "{refusal}");
    assert_eq!(state.changes(&Snapshot::of(&node.net.a)?), "");
    assert_eq!(node.agent.status()?["ready"], true);
    Ok(())
}

/// The tunnel device and the rules are the agent's, wherever its files are.
#[test]
fn cleanup_with_another_state_directory_refuses_while_an_agent_lives() -> Result<()> {
    let node = Cleaned::new("another", "--attach=auto", |_| Ok(()))?;
    let state = Snapshot::of(&node.net.a)?;
    let elsewhere = [
        "--state-dir=/run/another",
        "--bpf-pin-root=/sys/fs/bpf/another",
    ];
    let cleanup = |more: &[&str]| {
        node.agent
            .cli(&[&["cleanup"], &elsewhere[..], more].concat())
    };
    let refusal = cleanup(&[]).expect_err("an agent lives").to_string();
    let agent = format!(
        "an agent (process {}) with the subnet 10.244.",
        node.agent.child().pid()
    );
    for part in [
        "exit status 2",
        &agent,
        "stop it first",
        "pass --state-dir=/run/flannel,",
    ] {
        assert!(refusal.contains(part), "{part} in: {refusal}");
    }
    assert_eq!(state.changes(&Snapshot::of(&node.net.a)?), "");
    assert!(
        cleanup(&["--dry-run"])?
            .stdout
            .contains("would remove the device flannel.1")
    );
    node.agent.sigterm_and_wait()?;
    cleanup(&[])?;
    Ok(())
}

#[test]
fn cleanup_leaves_only_what_was_there_before_tcx() -> Result<()> {
    if hooks::lacks_tcx("cleanup of programs attached by TCX") {
        return Ok(());
    }
    let node = Cleaned::new("tcx", "--attach=auto", things_of_others)?;
    node.agent.sigterm_and_wait()?;
    assert!(
        !node.changes()?.is_empty(),
        "the agent leaves its datapath behind"
    );
    node.clean(&[], &["/run/flannel", SUBNET_ENV])?;
    let again = node.agent.cli(&["cleanup", "--dry-run"])?.stdout;
    assert!(
        !again.contains("route") && !again.contains("device") && !again.contains("pins"),
        "{again}"
    );
    Ok(())
}

#[test]
fn cleanup_leaves_only_what_was_there_before_clsact() -> Result<()> {
    let node = Cleaned::new("clsact", "--attach=clsact", things_of_others)?;
    node.agent.kill9()?;
    node.clean(&[], &["/run/flannel", SUBNET_ENV])?;
    Ok(())
}

#[test]
fn a_clsact_qdisc_and_filters_of_others_stay() -> Result<()> {
    let foreign = |node: &Node| {
        things_of_others(node)?;
        node.sh("tc qdisc add dev eth0 clsact")?;
        for side in ["ingress", "egress"] {
            node.sh(&format!(
                "tc filter add dev eth0 {side} prio 5 protocol ip u32 match u32 0 0 classid 1:1"
            ))?;
        }
        Ok(())
    };
    let node = Cleaned::new("foreign", "--attach=clsact", foreign)?;
    node.agent.sigterm_and_wait()?;
    node.clean(&[], &["/run/flannel", SUBNET_ENV])?;
    Ok(())
}

/// A filter that came after us sits on the qdisc we made: taking that away would take the filter
/// with it.
#[test]
fn a_clsact_qdisc_of_ours_stays_for_a_filter_of_others() -> Result<()> {
    let node = Cleaned::new("later", "--attach=clsact", |_| Ok(()))?;
    node.net
        .a
        .sh("tc filter add dev eth0 egress prio 5 protocol ip u32 match u32 0 0 classid 1:1")?;
    node.agent.sigterm_and_wait()?;
    node.agent.cli(&["cleanup"])?;
    let changes = node.changes()?;
    let foreign = |line: &str| line.contains("\"pref\":5,") || line.contains("clsact");
    assert!(
        changes.lines().count() > 0 && changes.lines().all(foreign),
        "{changes}"
    );
    assert_eq!(hooks::filters(&node.net.a, "eth0", Side::Egress)?, [""; 0]);
    Ok(())
}

/// Programs and files go; stock flannel takes over the rest.
#[test]
fn keep_network_leaves_what_packets_go_by_without_programs() -> Result<()> {
    let node = Cleaned::new("keepnet", "--attach=auto", |_| Ok(()))?;
    node.agent.sigterm_and_wait()?;
    let (tunnel, rules) = (
        TunnelState::of(&node.net.a)?,
        node.net.a.sh("nft -s list ruleset")?.stdout,
    );
    ensure!(
        tunnel.matching(&["route", "192.168.1.12"]).len() == 1 && rules.contains("FLANNEL-FWD"),
        "{tunnel:?} {rules}"
    );
    let did = node.agent.cli(&["cleanup", "--keep-network"])?.stdout;
    let kept: String = did
        .lines()
        .filter(|line| !line.contains("remove the unreachable route 10.244.0.0/16"))
        .collect();
    ensure!(
        kept.len() < did.len(),
        "stock flannel does not know the unreachable route: {did}"
    );
    ensure!(
        kept.contains("remove the pins") && !kept.contains("route") && !kept.contains("device"),
        "{did}"
    );
    eventually("a node without programs", Duration::from_secs(3), || {
        let now = Snapshot::of(&node.net.a)?;
        let left: Vec<_> = ["tcx", "bpffs"]
            .into_iter()
            .flat_map(|section| now.section(section))
            .collect();
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })?;
    assert_eq!(tunnel.changes(&TunnelState::of(&node.net.a)?), "");
    assert_eq!(node.net.a.sh("nft -s list ruleset")?.stdout, rules);
    assert_eq!(node.new_files()?, ["/run/flannel", SUBNET_ENV]);
    node.clean(&[], &["/run/flannel", SUBNET_ENV])?;
    Ok(())
}

#[test]
fn subnet_env_goes_only_when_asked_for() -> Result<()> {
    let node = Cleaned::new("env", "--attach=auto", |_| Ok(()))?;
    node.agent.sigterm_and_wait()?;
    node.clean(&["--remove-subnet-file", SUBNET_ENV], &[])?;
    let nothing = node.agent.cli(&["cleanup"])?.stdout;
    assert_eq!(nothing, "nothing to clean up\n");
    Ok(())
}
