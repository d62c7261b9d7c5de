//! The kinds of faults, and the packets that each may cost.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Node, TunnelState, eventually};
use nix::sys::signal::Signal;
use serde_json::Value;

use self::Loss::{All, Incoming, No, Outgoing};
use super::{
    member::{Member, SOON},
    site::{RECOVERY, Site},
};

/// A kind of fault.
#[derive(Debug)]
pub(super) struct Kind {
    /// As the table of results has it.
    pub(super) name: &'static str,
    pub(super) loss: Loss,
    /// Lets it happen to a node, and ends it.
    pub(super) happen: fn(&mut Site, usize) -> Result<()>,
}

/// The packets of the node that may be lost until the cluster has recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// None, of any node.
    No,
    /// Those to its pods.
    Incoming,
    /// Those of its pods.
    Outgoing,
    /// Both.
    All,
}

impl Loss {
    /// Returns true if packets from one node to another may be lost after a fault at `at`.
    pub(super) fn permits(self, at: usize, [from, to]: [usize; 2]) -> bool {
        match self {
            No => false,
            Incoming => to == at,
            Outgoing => from == at,
            All => from == at || to == at,
        }
    }
}

/// All of them.
pub(super) const KINDS: [Kind; 23] = [
    Kind {
        name: "agent killed",
        loss: No,
        happen: kill,
    },
    Kind {
        name: "agent ended",
        loss: No,
        happen: end,
    },
    Kind {
        name: "agent killed and replaced",
        loss: No,
        happen: kill_and_replace,
    },
    Kind {
        name: "agent ended and replaced",
        loss: No,
        happen: end_and_replace,
    },
    Kind {
        name: "all agents killed",
        loss: No,
        happen: kill_all,
    },
    Kind {
        name: "agent stopped (SIGSTOP)",
        loss: No,
        happen: stop,
    },
    Kind {
        name: "agent killed while etcd is down",
        loss: No,
        happen: kill_without_store,
    },
    Kind {
        name: "etcd killed",
        loss: No,
        happen: restart_store,
    },
    Kind {
        name: "etcd paused",
        loss: No,
        happen: pause_store,
    },
    Kind {
        name: "mode switched",
        loss: No,
        happen: switch_mode,
    },
    Kind {
        name: "firewall rules removed",
        loss: No,
        happen: remove_rules,
    },
    Kind {
        name: "lease deleted by an administrator",
        loss: Incoming,
        happen: delete_lease,
    },
    Kind {
        name: "routes to peers removed",
        loss: Outgoing,
        happen: remove_routes,
    },
    Kind {
        name: "neighbours removed",
        loss: Outgoing,
        happen: remove_neighbours,
    },
    Kind {
        name: "FDB entries removed",
        loss: Outgoing,
        happen: remove_fdb,
    },
    Kind {
        name: "forwarding switched off",
        loss: All,
        happen: switch_forwarding_off,
    },
    Kind {
        name: "tunnel device forwards nothing",
        loss: Incoming,
        happen: switch_device_forwarding_off,
    },
    Kind {
        name: "tunnel device down",
        loss: All,
        happen: set_device_down,
    },
    Kind {
        name: "tunnel device deleted",
        loss: All,
        happen: delete_device,
    },
    Kind {
        name: "cable pulled for a moment",
        loss: All,
        happen: pull_cable,
    },
    Kind {
        name: "address away for a moment",
        loss: All,
        happen: take_address,
    },
    Kind {
        name: "address changed",
        loss: All,
        happen: change_address,
    },
    Kind {
        name: "address changed without an agent",
        loss: All,
        happen: change_address_without_agent,
    },
];

/// The datagrams of each stream that an absent agent or store lasts for.
const ABSENCE: u64 = 100;

fn kill(site: &mut Site, at: usize) -> Result<()> {
    site.members[at].agent.kill9()?;
    site.wait_sent(ABSENCE)?;
    site.members[at].restart()
}

fn end(site: &mut Site, at: usize) -> Result<()> {
    site.members[at].agent.sigterm_and_wait()?;
    site.wait_sent(ABSENCE)?;
    site.members[at].restart()
}

fn kill_and_replace(site: &mut Site, at: usize) -> Result<()> {
    site.members[at].agent.kill9()?;
    site.members[at].replace()
}

fn end_and_replace(site: &mut Site, at: usize) -> Result<()> {
    site.members[at].agent.sigterm_and_wait()?;
    site.members[at].replace()
}

fn kill_all(site: &mut Site, _: usize) -> Result<()> {
    site.members
        .iter()
        .try_for_each(|member| member.agent.kill9())?;
    site.wait_sent(ABSENCE)?;
    site.members.iter_mut().try_for_each(Member::restart)
}

fn stop(site: &mut Site, at: usize) -> Result<()> {
    let child = site.members[at].agent.child();
    child.signal(Signal::SIGSTOP)?;
    site.wait_sent(ABSENCE)?;
    child.signal(Signal::SIGCONT)
}

fn kill_without_store(site: &mut Site, at: usize) -> Result<()> {
    site.nodes.etcd.stop()?;
    site.members[at].agent.kill9()?;
    site.members[at].restart()?;
    site.wait_sent(ABSENCE)?;
    site.nodes.etcd.start()
}

fn restart_store(site: &mut Site, _: usize) -> Result<()> {
    site.nodes.etcd.stop()?;
    site.wait_sent(ABSENCE)?;
    site.nodes.etcd.start()
}

fn pause_store(site: &mut Site, _: usize) -> Result<()> {
    site.nodes.etcd.pause()?;
    site.wait_sent(ABSENCE)?;
    site.nodes.etcd.resume()
}

fn switch_mode(site: &mut Site, at: usize) -> Result<()> {
    site.members[at].switch_mode()
}

/// Those of all programs. They may return in another order, and late: an agent whose rules are
/// removed again and again waits longer each time.
fn remove_rules(site: &mut Site, at: usize) -> Result<()> {
    let node = site.members[at].node();
    let rules = || -> Result<Vec<String>> {
        let mut lines: Vec<_> = node
            .sh("nft -s list ruleset")?
            .stdout
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort();
        Ok(lines)
    };
    let wanted = rules()?;
    node.sh("nft flush ruleset")?;
    eventually("the rules", RECOVERY, || {
        let now = rules()?;
        ensure!(now == wanted, "{now:#?}\ninstead of {wanted:#?}");
        Ok(())
    })
}

/// Waits until the agent has noticed, so that the recovery is not that of before.
fn delete_lease(site: &mut Site, at: usize) -> Result<()> {
    let member = &mut site.members[at];
    let (key, before) = (member.lease_key(), member.losses_logged());
    ensure!(site.nodes.etcd.delete(&key)?, "{key} is not in etcd");
    member.deleted_leases += 1;
    eventually("the loss in the log", SOON, || {
        ensure!(member.losses_logged() > before);
        Ok(())
    })
}

fn expect_tunnel_repaired(node: &Node, changes: &[String]) -> Result<()> {
    let wanted = TunnelState::of(node)?;
    changes
        .iter()
        .try_for_each(|change| node.sh(change).map(drop))?;
    eventually("the repair", SOON, || {
        let left = wanted.changes(&TunnelState::of(node)?);
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
}

fn remove_routes(site: &mut Site, at: usize) -> Result<()> {
    expect_tunnel_repaired(
        site.members[at].node(),
        &["ip route flush dev flannel.1".to_owned()],
    )
}

fn remove_neighbours(site: &mut Site, at: usize) -> Result<()> {
    expect_tunnel_repaired(
        site.members[at].node(),
        &["ip neigh flush dev flannel.1 nud permanent".to_owned()],
    )
}

fn remove_fdb(site: &mut Site, at: usize) -> Result<()> {
    let node = site.members[at].node();
    let entries: Vec<Value> = node.json(&["bridge", "-j", "fdb", "show", "dev", "flannel.1"])?;
    let macs = entries
        .iter()
        .filter(|entry| !entry["dst"].is_null())
        .map(|entry| entry["mac"].as_str());
    let delete = |mac| format!("bridge fdb del {mac} dev flannel.1");
    let changes = macs
        .map(|mac| mac.map(delete).context("a MAC"))
        .collect::<Result<Vec<_>>>()?;
    ensure!(changes.len() >= 2, "FDB entries: {entries:?}");
    expect_tunnel_repaired(node, &changes)
}

fn switch_off(node: &Node, sysctl: &str) -> Result<()> {
    let shown = || Ok(node.sh(&format!("sysctl -n {sysctl}"))?.stdout);
    node.expect_repairs(&[format!("sysctl -qw {sysctl}=0")], shown)
}

fn switch_forwarding_off(site: &mut Site, at: usize) -> Result<()> {
    switch_off(site.members[at].node(), "net.ipv4.ip_forward")
}

fn switch_device_forwarding_off(site: &mut Site, at: usize) -> Result<()> {
    switch_off(
        site.members[at].node(),
        "net.ipv4.conf.flannel/1.forwarding",
    )
}

fn set_device_down(site: &mut Site, at: usize) -> Result<()> {
    expect_tunnel_repaired(
        site.members[at].node(),
        &["ip link set flannel.1 down".to_owned()],
    )
}

fn delete_device(site: &mut Site, at: usize) -> Result<()> {
    expect_tunnel_repaired(
        site.members[at].node(),
        &["ip link delete flannel.1".to_owned()],
    )
}

/// The kernel removes the routes by gateways with it.
fn pull_cable(site: &mut Site, at: usize) -> Result<()> {
    let member = &site.members[at];
    member.node().sh("ip link set eth0 down")?;
    member.agent.wait_ready_is(false)?;
    member.node().sh("ip link set eth0 up")?;
    member.add_default_route()
}

fn take_address(site: &mut Site, at: usize) -> Result<()> {
    let member = &site.members[at];
    member.remove_address()?;
    member.agent.wait_ready_is(false)?;
    member.add_address()
}

fn change_address(site: &mut Site, at: usize) -> Result<()> {
    site.members[at].change_address()
}

fn change_address_without_agent(site: &mut Site, at: usize) -> Result<()> {
    let member = &mut site.members[at];
    member.agent.kill9()?;
    member.change_address()?;
    member.restart()
}
