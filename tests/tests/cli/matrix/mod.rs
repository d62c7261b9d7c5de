//! A matrix of diagnosis: each kind of fault that loses packets, with each backend and mode, and
//! what `status`, `check`, `explain`, `cluster status` and /readyz say of it. None of them says
//! that all is well. `docs/reference/diagnosis.md` has the answers; `FLANNEL_WRITE_DOCS=1` writes
//! them.

mod cells;
mod page;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Pair,
    cluster::{HOST_GW, topology::Stack},
    eventually,
};
use nix::sys::signal::Signal;

use self::{
    cells::{Baseline, Cell, HEALTH},
    page::Row,
};
use crate::extension;

/// Peers fall silent after some of these.
const ECHO: &str = "--peer-echo-interval=1";
/// For what the agent notices by itself.
const NOTICED: Duration = Duration::from_mins(2);

/// A change that another program makes to the sending node or its peer.
struct Fault {
    name: &'static str,
    /// A line for the shell.
    line: String,
    /// These undo it; the agent does so where there are none.
    undo: Vec<String>,
    at: Place,
    /// True if `maps dump --diff` compares what is changed.
    is_compared: bool,
    /// A code that the agent adds some seconds after another one.
    last_code: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On the sending node, while its agent is stopped: a running one repairs it.
    WithoutAgent,
    /// On the sending node, while its agent runs.
    Sender,
    /// On the node of the peer.
    Receiver,
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(ToString::to_string).collect()
}

fn removed(name: &'static str, line: impl Into<String>) -> Fault {
    Fault {
        name,
        line: line.into(),
        undo: Vec::new(),
        at: Place::WithoutAgent,
        is_compared: true,
        last_code: None,
    }
}

/// Faults with any backend.
fn of_hosts(has_tunnel: bool) -> Vec<Fault> {
    let mut faults = vec![
        Fault {
            is_compared: false,
            ..removed(
                "forwarding switched off",
                "sysctl -qw net.ipv4.ip_forward=0",
            )
        },
        Fault {
            name: "rule that drops forwarded packets",
            line: "iptables -I FORWARD -j DROP".to_owned(),
            undo: lines(&["iptables -D FORWARD -j DROP"]),
            at: Place::Sender,
            is_compared: false,
            last_code: None,
        },
        Fault {
            name: "peer without a link",
            line: "ip link set eth0 down".to_owned(),
            undo: lines(&[
                "ip link set eth0 up",
                "ip route replace default via 192.168.1.1",
            ]),
            at: Place::Receiver,
            is_compared: false,
            last_code: None,
        },
    ];
    if has_tunnel {
        faults.push(Fault {
            name: "rule of the peer that drops the tunnel's packets",
            line: "iptables -I INPUT -p udp -m multiport --dports 8472,8473,8285,51820 -j DROP"
                .to_owned(),
            undo: lines(&[
                "iptables -D INPUT -p udp -m multiport --dports 8472,8473,8285,51820 -j DROP",
            ]),
            at: Place::Receiver,
            is_compared: false,
            last_code: None,
        });
    }
    faults
}

/// Two nodes with a backend in a mode.
struct Subject {
    backend: &'static str,
    pair: Pair,
    subnet: String,
}

impl Subject {
    fn new(backend: &'static str, mode: &'static str, config: &str) -> Result<Self> {
        let (mode_flag, health) = (
            format!("--datapath={mode}"),
            format!("--healthz-port={HEALTH}"),
        );
        let name = format!("matrix-{backend}-{mode}");
        let pair = Pair::of_backend(&name, Stack::V4, config, &[&mode_flag, &health, ECHO])?;
        pair.sender.wait_status("an echo", |status| {
            let (echo, node) = (
                &status["peers"][0]["echo"],
                &status["peers"][0]["public_ip"],
            );
            ensure!(echo["state"] == "answering", "{}", status["peers"]);
            // That of its node does not travel as packets of pods do.
            ensure!(
                backend != "extension" || echo["address"] != *node,
                "{}",
                status["peers"]
            );
            ensure!(
                status["problems"].as_array().is_some_and(Vec::is_empty),
                "{}",
                status["problems"]
            );
            Ok(())
        })?;
        let subnet = pair.sender.status()?["peers"][0]["subnet"]
            .as_str()
            .context("a peer")?
            .to_owned();
        Ok(Self {
            backend,
            pair,
            subnet,
        })
    }

    /// Makes each fault, and looks at what is said of it: `known` has the rows of the page.
    fn judge_all(
        &self,
        known: &[String],
        faults: impl Fn(&Self) -> Result<Vec<Fault>>,
    ) -> Result<Vec<Row>> {
        let baseline = Baseline::read(&self.pair)?;
        let mut rows = Vec::new();
        for index in 0.. {
            let story = cells::explain(&self.pair)?;
            ensure!(
                story == Cell::Well,
                "explain, before the next fault: {story}"
            );
            // Read again: the agent may have made other objects when it repaired.
            let Some(fault) = faults(self)?.into_iter().nth(index) else {
                return Ok(rows);
            };
            let row = self.judge(&baseline, &fault, known.get(index));
            rows.push(row.with_context(|| format!("{} {}", self.backend, fault.name))?);
        }
        Ok(rows)
    }

    /// Everything that is said of a fault: none of it may be that all is well.
    fn look(&self, baseline: &Baseline, fault: &Fault, known: Option<&String>) -> Result<Row> {
        let agent = if fault.at == Place::WithoutAgent {
            "stopped"
        } else {
            "runs"
        };
        let row = Row {
            fault: fault.name,
            agent,
            cells: baseline.cells(&self.pair)?,
        };
        row.cells.expect_none_well()?;
        let last = fault.last_code.unwrap_or_default();
        ensure!(
            row.cells.all_of_status().all(|cell| cell.contains(last)),
            "{row} without {last}"
        );
        ensure!(
            known.is_none_or(|known| *known == row.to_string()),
            "{row}, not {known:?}"
        );
        Ok(row)
    }

    fn judge(&self, baseline: &Baseline, fault: &Fault, known: Option<&String>) -> Result<Row> {
        let Pair {
            sender,
            receiver,
            near,
            far,
            ..
        } = &self.pair;
        let node = if fault.at == Place::Receiver {
            receiver.node()
        } else {
            sender.node()
        };
        if fault.at == Place::WithoutAgent {
            sender.child().signal(Signal::SIGSTOP)?;
        }
        node.sh(&fault.line)?;
        eventually("lost packets", Duration::from_secs(30), || {
            ensure!(near.pings(1, "", far.ip()).is_err(), "they still arrive");
            Ok(())
        })?;
        let look = || self.look(baseline, fault, known);
        let row = match fault.at {
            Place::WithoutAgent => look()?,
            // The agent needs some seconds to see it, and may see something else first.
            Place::Sender | Place::Receiver => {
                eventually("answers like those of the page", NOTICED, look)?
            }
        };
        if fault.is_compared {
            let said = sender.cli_any(&["maps", "dump", "--diff"])?;
            ensure!(said.code != 0, "maps dump --diff ended with 0: {said:?}");
        }
        fault
            .undo
            .iter()
            .try_for_each(|line| node.sh(line).map(drop))?;
        if fault.at == Place::WithoutAgent {
            sender.child().signal(Signal::SIGCONT)?;
        }
        eventually("all is well again", NOTICED, || {
            near.ping(far.ip())?;
            let problems = sender.status()?["problems"].clone();
            ensure!(problems.as_array().is_some_and(Vec::is_empty), "{problems}");
            Ok(())
        })?;
        Ok(row)
    }
}

/// Judges a subject, and compares with the page.
fn judge(
    backend: &'static str,
    mode: &'static str,
    config: &str,
    faults: impl Fn(&Subject) -> Result<Vec<Fault>>,
) -> Result<()> {
    let heading = format!("{backend} in mode {mode}");
    let known = page::known(&heading)?;
    let rows = Subject::new(backend, mode, config)?.judge_all(&known, faults)?;
    page::expect(&heading, &rows)
}

fn vxlan(mode: &'static str) -> Result<()> {
    judge("vxlan", mode, r#"{"Type":"vxlan"}"#, |subject| {
        let fdb = subject
            .pair
            .sender
            .node()
            .sh("bridge fdb show dev flannel.1")?
            .stdout;
        let entry = fdb
            .lines()
            .find(|line| line.contains(" dst "))
            .context(fdb.clone())?;
        let mac = entry.split(' ').next().context("a MAC")?;
        let gateway = subject.subnet.split('/').next().context("an address")?;
        let mut faults = vec![
            removed(
                "route removed",
                format!("ip route del {} dev flannel.1", subject.subnet),
            ),
            removed(
                "neighbour removed",
                format!("ip neigh del {gateway} dev flannel.1"),
            ),
            removed(
                "FDB entry removed",
                format!("bridge fdb del {mac} dev flannel.1"),
            ),
            removed("device down", "ip link set flannel.1 down"),
        ];
        faults.extend(of_hosts(true));
        Ok(faults)
    })
}

#[test]
fn vxlan_in_mode_kernel() -> Result<()> {
    vxlan("kernel")
}

#[test]
fn vxlan_in_mode_encap() -> Result<()> {
    vxlan("encap")
}

#[test]
fn vxlan_in_mode_fast() -> Result<()> {
    vxlan("fast")
}

fn host_gw(mode: &'static str) -> Result<()> {
    judge("host-gw", mode, HOST_GW, |subject| {
        let mut faults = vec![removed(
            "route removed",
            format!("ip route del {}", subject.subnet),
        )];
        faults.extend(of_hosts(false));
        Ok(faults)
    })
}

#[test]
fn host_gw_in_mode_kernel() -> Result<()> {
    host_gw("kernel")
}

#[test]
fn host_gw_in_mode_fast() -> Result<()> {
    host_gw("fast")
}

#[test]
fn wireguard_in_mode_kernel() -> Result<()> {
    judge(
        "wireguard",
        "kernel",
        r#"{"Type":"wireguard"}"#,
        |subject| {
            let peers = subject
                .pair
                .sender
                .node()
                .sh("wg show flannel-wg peers")?
                .stdout;
            let peer = peers.trim();
            let mut faults = vec![
                removed(
                    "peer removed",
                    format!("wg set flannel-wg peer {peer} remove"),
                ),
                removed(
                    "allowed IPs changed",
                    format!("wg set flannel-wg peer {peer} allowed-ips 192.0.2.9/32"),
                ),
            ];
            faults.extend(of_hosts(true));
            Ok(faults)
        },
    )
}

#[test]
fn udp_in_mode_kernel() -> Result<()> {
    judge("udp", "kernel", r#"{"Type":"udp"}"#, |subject| {
        let status = subject.pair.sender.status()?;
        let pid = status["udp"]["pid"].as_u64().context("the process")?;
        let mut faults = vec![removed("process ended", format!("kill -KILL {pid}"))];
        faults.extend(of_hosts(true));
        Ok(faults)
    })
}

/// The agent does not repair what commands made, so it runs while their route is gone.
#[test]
fn extension_in_mode_kernel() -> Result<()> {
    judge(
        "extension",
        "kernel",
        &extension::vxlan().to_string(),
        |subject| {
            let gateway = subject.subnet.split('/').next().context("an address")?;
            let subnet = &subject.subnet;
            let mut faults = vec![Fault {
                name: "route removed",
                line: format!("ip route del {subnet} dev ext0"),
                undo: vec![format!(
                    "ip route replace {subnet} via {gateway} dev ext0 onlink"
                )],
                at: Place::Sender,
                is_compared: false,
                last_code: Some("unrouted_peer"),
            }];
            faults.extend(of_hosts(true));
            Ok(faults)
        },
    )
}
