//! The receiving node's rules about tunnel packets, and the kernel's own check of their IP header:
//! a packet of a known flow is put into its pod only if it arrived as the one from which the flow
//! was learned. Another one takes the kernel's path, where rules see it.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::{program::Program, reason::Reason};
use flannel_tests::{
    eventually,
    fast::{Family, FastLab, PORT},
    load::datagrams::Datagrams,
    packet::wire::{Capture, inject_frame},
};

/// Forged packets of each kind.
pub(super) const FORGED: usize = 50;
/// Lengths of a tunnel frame of one message: outer Ethernet and IP header, UDP and VXLAN header,
/// inner Ethernet, IP and UDP header, the message.
const IP: usize = 14;
pub(super) const INNER_UDP: usize = IP + 20 + 8 + 8 + 14 + 20;
const MESSAGE: usize = INNER_UDP + 8;
const LEN: usize = MESSAGE + 4;
/// The message of forged packets, which a conversation passes over: it begins with another.
const MARK: [u8; 4] = [0; 4];
/// An Ethernet address that no host has.
const FOREIGN: [u8; 6] = [2, 0, 0, 0, 0, 0x66];

/// Rules of a careful host.
pub(super) const RULES: &str = "table ip receipt {
    chain early { type filter hook prerouting priority -300; ether saddr 02:00:00:00:00:66 drop; }
    chain input {
        type filter hook input priority 0;
        udp dport 8472 ip ttl < 64 drop
        udp dport 8472 ip dscp 46 drop
        udp dport 8472 udp sport 1234 drop
    }
}";

pub(super) type Change = fn(&mut [u8]);

/// Changes of the outer headers that a rule sees, by name.
pub(super) const KINDS: [(&str, Change); 4] = [
    ("TTL", |frame| frame[IP + 8] = 63),
    ("DSCP", |frame| frame[IP + 1] = 46 << 2),
    ("source MAC", |frame| frame[6..12].copy_from_slice(&FOREIGN)),
    ("source port", |frame| {
        frame[IP + 20..IP + 22].copy_from_slice(&1234_u16.to_be_bytes());
    }),
];

/// A tunnel frame with a message.
pub(super) fn is_of_tunnel(frame: &[u8]) -> bool {
    frame.len() == LEN && frame[IP + 9] == 17 && frame[IP + 22..IP + 24] == 8472_u16.to_be_bytes()
}

/// A datagram in the pod.
pub(super) fn is_marked(frame: &[u8]) -> bool {
    frame.len() == LEN - (INNER_UDP - 20 - IP) && frame[IP + 9] == 17 && frame.ends_with(&MARK)
}

/// A genuine frame with another message and changed outer headers, of which the checksums are
/// right. The kernel's path and the programs accept it alike, but for what is changed.
pub(super) fn forged(genuine: &[u8], change: Change) -> Vec<u8> {
    let mut frame = genuine.to_vec();
    frame[INNER_UDP + 6..MESSAGE].fill(0);
    frame[MESSAGE..].copy_from_slice(&MARK);
    frame[IP + 26..IP + 28].fill(0);
    change(&mut frame);
    frame[IP + 10..IP + 12].fill(0);
    let sum: u32 = frame[IP..IP + 20]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !(sum + (sum >> 16)) & 0xffff;
    frame[IP + 10..IP + 12].copy_from_slice(&checksum.to_be_bytes()[2..]);
    frame
}

struct Receiver<'a> {
    lab: &'a FastLab,
    /// Marked messages that came to the pod.
    arrived: Capture,
    usual: Vec<u8>,
}

impl Receiver<'_> {
    /// Marked messages of forged frames that reach the pod. One that is not changed comes behind
    /// them.
    fn arrived(&self, frame: &[u8]) -> Result<usize> {
        self.arrived.clear();
        (0..FORGED).try_for_each(|_| inject_frame(&self.lab.nodes.a, "eth0", frame))?;
        let before = self.counted(Reason::Replayed)?;
        inject_frame(&self.lab.nodes.a, "eth0", &self.usual)?;
        eventually("the frame behind", Duration::from_secs(5), || {
            ensure!(
                self.counted(Reason::Replayed)? > before || !self.arrived.is_empty(),
                "nothing came"
            );
            Ok(())
        })?;
        Ok(self.arrived.len().saturating_sub(1))
    }

    fn counted(&self, reason: Reason) -> Result<u64> {
        Ok(self.lab.maps[1]
            .stats
            .get(Program::FromUnderlay, reason)?
            .packets)
    }
}

#[test]
fn rules_about_tunnel_packets_hold_for_known_flows() -> Result<()> {
    let lab = FastLab::new("receipt", &[])?;
    let at: SocketAddr = Family::V4.end(&lab.far)?;
    let mut talk = Datagrams::open(&lab.near, &lab.far, at, None)?;
    ensure!(at.port() == PORT);
    let genuine = Capture::start(&lab.nodes.b, "eth0", is_of_tunnel)?;
    lab.until_replayed(|messages| talk.exchange(messages))?;
    let genuine = genuine.frames().pop().context("a tunnel frame")?;
    let arrived = Capture::start(&lab.far, "eth0", is_marked)?;
    let receiver = Receiver {
        lab: &lab,
        arrived,
        usual: forged(&genuine, |_| ()),
    };

    let differs = receiver.counted(Reason::OuterDiffers)?;
    for (name, change) in KINDS {
        talk.exchange(20)?;
        let came = receiver.arrived(&forged(&genuine, change))?;
        ensure!(
            came == FORGED,
            "{name}: {came} of {FORGED} came without a rule"
        );
    }
    let differ = receiver.counted(Reason::OuterDiffers)? - differs;
    // The first of a kind passes the kernel, and teaches how the rest of them arrive.
    ensure!(
        differ >= KINDS.len() as u64,
        "{differ} were left to the kernel"
    );

    lab.nodes.b.nft(RULES)?;
    for (name, change) in KINDS {
        talk.exchange(20)?;
        let came = receiver.arrived(&forged(&genuine, change))?;
        ensure!(came == 0, "{name}: {came} of {FORGED} came past the rule");
    }
    lab.until_replayed(|messages| talk.exchange(messages))
}

#[test]
fn a_wrong_checksum_of_the_outer_ip_header_is_the_kernels() -> Result<()> {
    let lab = FastLab::new("receipt-sum", &[])?;
    let mut talk = Datagrams::open(&lab.near, &lab.far, Family::V4.end(&lab.far)?, None)?;
    let genuine = Capture::start(&lab.nodes.b, "eth0", is_of_tunnel)?;
    lab.until_replayed(|messages| talk.exchange(messages))?;
    let genuine = genuine.frames().pop().context("a tunnel frame")?;
    let arrived = Capture::start(&lab.far, "eth0", is_marked)?;
    let receiver = Receiver {
        lab: &lab,
        arrived,
        usual: forged(&genuine, |_| ()),
    };
    let mut damaged = receiver.usual.clone();
    damaged[IP + 10] ^= 1;
    let came = receiver.arrived(&damaged)?;
    ensure!(came == 0, "{came} of {FORGED} came");
    let refused = receiver.counted(Reason::OuterIpChecksum)?;
    ensure!(refused >= FORGED as u64, "{refused}");
    Ok(())
}
