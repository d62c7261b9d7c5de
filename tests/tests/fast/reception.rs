//! Tunnel packets of unknown flows: a program takes their outer headers off only if packets like
//! them come through the kernel, so the receiving node's rules about tunnel packets hold.

use std::{cell::Cell, net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::{program::Program, reason::Reason};
use flannel_tests::{
    eventually,
    fast::{Family, FastLab, PORT},
    load::datagrams::Datagrams,
    no_agent::BarePair,
    packet::wire::{Capture, inject_frame},
};

use super::receipt::{Change, FORGED, INNER_UDP, KINDS, RULES, forged, is_marked, is_of_tunnel};

/// The fields by which receptions are distinguished; the last kind is the source port.
const FIELDS: &[(&str, Change)] = KINDS.split_at(3).0;

/// Bytes of the source port in the pod's frame.
const SOURCE_PORT: std::ops::Range<usize> = 34..36;

const CLOSED: &str = "table ip closed {
    chain input { type filter hook input priority 0; udp dport 8472 drop; }
}";

const MARKED: &str = "table ip marked {
    chain early { type filter hook prerouting priority -150; udp dport 8472 meta mark set 5; }
    chain forward { type filter hook forward priority 0; meta mark 5 drop; }
}";

struct Receiver {
    genuine: Vec<u8>,
    arrived: Capture,
    /// The port of the last unknown flow.
    port: Cell<u16>,
    pair: BarePair,
}

/// The fate of the packets of as many unknown flows.
#[derive(Debug)]
struct Outcome {
    came: usize,
    decapsulated: u64,
}

impl Receiver {
    fn new(name: &str) -> Result<Self> {
        let pair = BarePair::new(name)?;
        let seen = Capture::start(&pair.b.node, "eth0", is_of_tunnel)?;
        let at = SocketAddr::new(pair.far.ip(), PORT);
        Datagrams::open(&pair.near, &pair.far, at, None)?.exchange(1)?;
        let genuine = seen.frames().pop().context("a tunnel frame")?;
        let arrived = Capture::start(&pair.far, "eth0", is_marked)?;
        Ok(Self {
            genuine,
            arrived,
            port: Cell::new(20_000),
            pair,
        })
    }

    /// Sends a packet of each of [`FORGED`] unknown flows.
    fn send(&self, change: Change) -> Result<Outcome> {
        self.arrived.clear();
        let (seen, decapsulated) = (self.seen()?, self.decapsulated()?);
        for _ in 0..FORGED {
            self.port.set(self.port.get() + 1);
            let mut frame = forged(&self.genuine, change);
            frame[INNER_UDP..INNER_UDP + 2].copy_from_slice(&self.port.get().to_be_bytes());
            inject_frame(&self.pair.a.node, "eth0", &frame)?;
        }
        eventually(
            "the frames at the other node",
            Duration::from_secs(10),
            || {
                let seen = self.seen()? - seen;
                ensure!(seen >= FORGED as u64, "{seen} of {FORGED}");
                Ok(())
            },
        )?;
        // What the device has queued goes before.
        self.pair.a.node.sh("ping -c 3 -i 0.01 -W 5 192.168.1.12")?;
        Ok(Outcome {
            came: self.arrived.len(),
            decapsulated: self.decapsulated()? - decapsulated,
        })
    }

    fn send_usual(&self) -> Result<Outcome> {
        self.send(|_| ())
    }

    /// All usual packets come, and the program takes outer headers off.
    fn expect_decapsulated(&self) -> Result<()> {
        let usual = self.send_usual()?;
        ensure!(usual.came == FORGED && usual.decapsulated > 0, "{usual:?}");
        Ok(())
    }

    /// Tunnel packets that came to the node.
    fn seen(&self) -> Result<u64> {
        let counts = self.pair.b.counts()?;
        let of_program = |program: &str, reason: &str| {
            program == Program::FromUnderlay.name() && reason != "not_tunnel"
        };
        Ok(counts
            .iter()
            .filter(|((program, reason), _)| of_program(program, reason))
            .map(|(_, count)| count)
            .sum())
    }

    fn decapsulated(&self) -> Result<u64> {
        self.pair
            .b
            .counted(Program::FromUnderlay, Reason::Decapsulated)
    }

    /// Changes rules, and says so as an agent does.
    fn nft(&mut self, script: &str) -> Result<()> {
        self.pair.b.nft(script)?;
        self.pair.b.maps.mode.bump()?;
        Ok(())
    }
}

#[test]
fn outer_headers_of_unknown_flows_come_off_and_the_pod_gets_the_kernels_packet() -> Result<()> {
    let mut receiver = Receiver::new("reception")?;
    receiver.pair.b.maps.mode.bump()?;
    let sent = receiver.send_usual()?;
    ensure!(
        sent.came == FORGED && sent.decapsulated + 5 >= FORGED as u64,
        "{sent:?}"
    );
    ensure!(
        sent.decapsulated < FORGED as u64,
        "no packet was a probe: {sent:?}"
    );
    let mut frames = receiver.arrived.frames();
    for frame in &mut frames {
        frame[SOURCE_PORT].fill(0);
    }
    frames.dedup();
    ensure!(
        frames.len() == 1,
        "the kernel's frame is another: {frames:02x?}"
    );
    Ok(())
}

#[test]
fn rules_about_tunnel_packets_hold_for_unknown_flows() -> Result<()> {
    let mut receiver = Receiver::new("reception-rules")?;
    for (name, change) in FIELDS {
        let sent = receiver.send(*change)?;
        ensure!(
            sent.came == FORGED && sent.decapsulated > 0,
            "{name}, without a rule: {sent:?}"
        );
    }
    receiver.nft(RULES)?;
    for (name, change) in FIELDS {
        receiver
            .expect_decapsulated()
            .with_context(|| format!("before {name}"))?;
        let sent = receiver.send(*change)?;
        ensure!(
            sent.came == 0,
            "{name}: packets came past the rule: {sent:?}"
        );
    }
    Ok(())
}

#[test]
fn a_new_rule_ends_a_reception_at_once_and_in_two_seconds_without_an_event() -> Result<()> {
    let mut receiver = Receiver::new("reception-ends")?;
    receiver.expect_decapsulated()?;
    receiver.nft(CLOSED)?;
    let sent = receiver.send_usual()?;
    ensure!(sent.came == 0, "{sent:?}");
    receiver.nft("delete table ip closed")?;
    receiver.expect_decapsulated()?;

    receiver.pair.b.nft(CLOSED)?;
    eventually("the end of the reception", Duration::from_secs(10), || {
        let sent = receiver.send_usual()?;
        ensure!(sent.came == 0, "{sent:?}");
        Ok(())
    })
}

#[test]
fn a_mark_that_a_rule_gives_to_tunnel_packets_is_not_lost() -> Result<()> {
    let mut receiver = Receiver::new("reception-mark")?;
    receiver.expect_decapsulated()?;
    receiver.nft(MARKED)?;
    let sent = receiver.send_usual()?;
    ensure!(sent.came == 0, "{sent:?}");
    receiver.nft("delete chain ip marked forward")?;
    let sent = receiver.send_usual()?;
    ensure!(sent.came == FORGED && sent.decapsulated == 0, "{sent:?}");
    Ok(())
}

/// A rule that matches on what differs between the packets of one peer sees each of them.
#[test]
fn a_rule_about_source_ports_keeps_outer_headers_and_is_named() -> Result<()> {
    let lab = FastLab::new("reception-port", &[])?;
    let reason = || -> Result<Option<String>> {
        let status = lab.agents[1].status()?;
        Ok(status["fast"]["decapsulation_reason"]
            .as_str()
            .map(str::to_owned))
    };
    let wait = |wanted: Option<&str>| {
        eventually("the reason", Duration::from_secs(40), || {
            let reason = reason()?;
            ensure!(reason.as_deref() == wanted, "{reason:?}");
            Ok(())
        })
    };
    wait(None)?;
    lab.nodes.b.nft(
        "table ip receipt \
         { chain input { type filter hook input priority 0; udp sport 40000-50000 counter; }; }",
    )?;
    wait(Some(
        "rules judge them one by one in ip receipt input (source port)",
    ))?;
    let counted = || {
        Ok::<_, anyhow::Error>(
            lab.maps[1]
                .stats
                .get(Program::FromUnderlay, Reason::Decapsulated)?
                .packets,
        )
    };
    let before = counted()?;
    for port in [4000, 4001, 4002] {
        let at = SocketAddr::new(Family::V4.end(&lab.far)?.ip(), port);
        Datagrams::open(&lab.near, &lab.far, at, None)?.exchange(1)?;
    }
    let decapsulated = counted()? - before;
    ensure!(decapsulated == 0, "{decapsulated}");
    lab.nodes.b.sh("nft delete table ip receipt")?;
    wait(None)
}
