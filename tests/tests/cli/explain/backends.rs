//! Of each backend, with the agent stopped: whatever another program removes, `explain` does not
//! say that packets arrive, and names the step where the way is broken.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Pair, cluster::HOST_GW, eventually, topology::Stack};
use nix::sys::signal::Signal;
use serde_json::Value;

/// An object that another program removes, and the topic of the step that finds it.
struct Fault {
    /// A line for the shell of the sending node.
    remove: String,
    topic: &'static str,
}

fn fault(remove: impl Into<String>, topic: &'static str) -> Fault {
    Fault { remove: remove.into(), topic }
}

/// Two nodes with a backend, and where a packet goes between their pods.
struct Way {
    pair: Pair,
    subnet: String,
    gateway: String,
}

impl Way {
    fn new(name: &str, backend: &str) -> Result<Self> {
        let pair = Pair::of_backend(name, Stack::V4, backend, &[])?;
        let status = pair.sender.status()?;
        let subnet = status["peers"][0]["subnet"].as_str().context("a peer")?.to_owned();
        let gateway = subnet.split('/').next().context("an address")?.to_owned();
        Ok(Self { pair, subnet, gateway })
    }

    fn explain(&self) -> Result<(i32, Value)> {
        let (source, destination) = (self.pair.near.ip().to_string(), self.pair.far.ip().to_string());
        let output = self.pair.sender.cli_any(&["explain", "-o", "json", "--proto=icmp", &source, &destination])?;
        let story = serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))?;
        Ok((output.code, story))
    }

    /// Removes each thing while the agent is stopped, which then repairs it.
    fn break_all(&self, faults: impl Fn(&Self) -> Result<Vec<Fault>>) -> Result<()> {
        let Pair { sender, near, far, .. } = &self.pair;
        for index in 0.. {
            let (code, story) = self.explain()?;
            ensure!(code == 0 && story["verdict"]["reaches"] == true, "nothing is broken: {story:#}");
            // Read again: the agent may have made other objects when it repaired.
            let Some(Fault { remove, topic }) = faults(self)?.into_iter().nth(index) else { return Ok(()) };
            sender.child().signal(Signal::SIGSTOP)?;
            sender.node().sh(&remove)?;
            eventually(&format!("lost packets after {remove}"), Duration::from_secs(30), || {
                ensure!(near.pings(1, "", far.ip()).is_err(), "they still arrive");
                Ok(())
            })?;
            let (code, story) = self.explain()?;
            ensure!(code == 1 && story["verdict"]["reaches"] == false, "{remove}: {story:#}");
            let steps = story["steps"].as_array().context("steps")?;
            let first = steps.iter().find(|step| step["state"] == "fail").context("a broken step")?;
            ensure!(first["topic"] == topic, "{remove}: {first}");
            // What else people ask says nothing good either.
            for words in [&["status"][..], &["maps", "dump", "--diff"]] {
                let said = sender.cli_any(words)?;
                ensure!(said.code != 0, "{remove}: {words:?} ended with 0: {said:?}");
            }
            sender.child().signal(Signal::SIGCONT)?;
            // Peers of a WireGuard device are looked at every 30 s.
            eventually("the repair", Duration::from_mins(2), || near.ping(far.ip()))?;
        }
        Ok(())
    }
}

#[test]
fn of_vxlan() -> Result<()> {
    let way = Way::new("broken-vxlan", r#"{"Type":"vxlan"}"#)?;
    way.break_all(|way| {
        let fdb = way.pair.sender.node().sh("bridge fdb show dev flannel.1")?.stdout;
        let entry = fdb.lines().find(|line| line.contains(" dst ")).context(fdb.clone())?;
        let mac = entry.split(' ').next().context("a MAC")?;
        Ok(vec![
            fault(format!("ip route del {} dev flannel.1", way.subnet), "route"),
            fault(format!("ip neigh del {} dev flannel.1", way.gateway), "neighbour"),
            fault(format!("bridge fdb del {mac} dev flannel.1"), "fdb"),
            fault("ip link set flannel.1 down", "route"),
        ])
    })
}

#[test]
fn of_rules_that_forward() -> Result<()> {
    let way = Way::new("broken-rules", r#"{"Type":"vxlan"}"#)?;
    let Pair { sender, near, far, .. } = &way.pair;
    sender.node().sh("iptables -P FORWARD DROP")?;
    let (code, story) = way.explain()?;
    ensure!(code == 0, "the agent's rules accept pods' packets: {story:#}");
    near.ping(far.ip())?;
    sender.child().signal(Signal::SIGSTOP)?;
    sender.node().sh("iptables -F FORWARD")?;
    ensure!(near.pings(1, "", far.ip()).is_err(), "the policy is DROP");
    let (code, story) = way.explain()?;
    ensure!(code == 2 && story["verdict"]["reaches"].is_null(), "{story:#}");
    sender.child().signal(Signal::SIGCONT)?;
    eventually("the agent's rules", Duration::from_mins(1), || near.ping(far.ip()))?;
    ensure!(way.explain()?.0 == 0, "{:#}", way.explain()?.1);
    Ok(())
}

#[test]
fn of_host_gw() -> Result<()> {
    let way = Way::new("broken-host-gw", HOST_GW)?;
    way.break_all(|way| Ok(vec![fault(format!("ip route del {}", way.subnet), "route")]))
}

#[test]
fn of_wireguard() -> Result<()> {
    let way = Way::new("broken-wireguard", r#"{"Type":"wireguard"}"#)?;
    way.break_all(|way| {
        let peers = way.pair.sender.node().sh("wg show flannel-wg peers")?.stdout;
        Ok(vec![
            fault(format!("wg set flannel-wg peer {} remove", peers.trim()), "wireguard"),
            fault(format!("wg set flannel-wg peer {} allowed-ips 192.0.2.9/32", peers.trim()), "wireguard"),
        ])
    })
}

#[test]
fn of_udp() -> Result<()> {
    let way = Way::new("broken-udp", r#"{"Type":"udp"}"#)?;
    way.break_all(|way| {
        let status = way.pair.sender.status()?;
        let pid = status["udp"]["pid"].as_u64().context("the process")?;
        Ok(vec![fault(format!("kill -KILL {pid}"), "process")])
    })
}
