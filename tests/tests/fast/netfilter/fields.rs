//! Rules that look at a field in which packets of one flow differ: each packet meets them,
//! whichever taught the flow.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    fast::{Family, FastLab},
    load::datagrams::{Datagrams, server},
};
use nix::sys::socket::{setsockopt, sockopt};

/// Datagrams of each kind.
const EACH: u32 = 500;
const EXPEDITED: i32 = 0xb8;
const TTL: i32 = 7;

/// A field of the packets that a socket sends.
#[derive(Clone, Copy, Debug)]
enum Field {
    Dscp,
    Ttl,
}

impl Field {
    /// Sends as pods do by default, or with the value the rule is about.
    fn set(self, socket: &UdpSocket, family: Family, special: bool) -> Result<()> {
        match (self, family) {
            (Self::Dscp, Family::V4) => setsockopt(
                socket,
                sockopt::Ipv4Tos,
                &if special { EXPEDITED } else { 0 },
            )?,
            (Self::Dscp, Family::V6) => setsockopt(
                socket,
                sockopt::Ipv6TClass,
                &if special { EXPEDITED } else { 0 },
            )?,
            (Self::Ttl, Family::V4) => {
                setsockopt(socket, sockopt::Ipv4Ttl, &if special { TTL } else { 64 })?;
            }
            (Self::Ttl, Family::V6) => {
                setsockopt(socket, sockopt::Ipv6Ttl, &if special { TTL } else { 64 })?;
            }
        }
        Ok(())
    }

    /// A match on that value, in FORWARD: one hop less than sent.
    const fn rule(self, family: Family) -> &'static str {
        match (self, family) {
            (Self::Dscp, _) => "-m dscp --dscp 46",
            (Self::Ttl, Family::V4) => "-m ttl --ttl-eq 6",
            (Self::Ttl, Family::V6) => "-m hl --hl-eq 6",
        }
    }
}

/// A DROP by DSCP or TTL drops what it matches of a known flow, and nothing else.
pub(crate) fn drops_by_fields(lab: &FastLab) -> Result<()> {
    for mode in ["kernel", "fast"] {
        lab.set_mode(mode)?;
        for family in Family::ALL {
            for field in [Field::Dscp, Field::Ttl] {
                drops(lab, mode, family, field)
                    .with_context(|| format!("mode {mode}, {family:?}, {field:?}"))?;
            }
        }
    }
    Ok(())
}

fn drops(lab: &FastLab, mode: &str, family: Family, field: Field) -> Result<()> {
    let node = &lab.nodes.a;
    let rule = format!("FORWARD -p udp {} -j DROP", field.rule(family));
    node.sh(&format!("{} -I {rule}", family.iptables()))?;
    let mut talk = Datagrams::open(&lab.near, &lab.far, family.end(&lab.far)?, None)?;
    // The plain ones teach.
    lab.until_replayed_on([mode == "fast"; 2], |messages| talk.exchange(messages))?;
    let sink = server(&lab.far, SocketAddr::new(family.of(&lab.far)?, 9200))?;
    talk.client.connect(sink.local_addr()?)?;
    let (mut plain, mut special) = (0, 0);
    for number in 0..2 * EACH {
        let is_special = number % 2 == 1;
        field.set(&talk.client, family, is_special)?;
        talk.client.send(&[u8::from(is_special)])?;
        // One at a time: the plain ones are answered for by their arrival.
        if !is_special {
            special += u32::from(next_is_special(&sink)?);
            plain += 1;
        }
    }
    node.sh(&format!("{} -D {rule}", family.iptables()))?;
    ensure!(
        special == 0,
        "{special} of {EACH} passed the DROP, {plain} others arrived"
    );
    Ok(())
}

/// Receives one that is not special; whether special ones arrived before it.
fn next_is_special(sink: &UdpSocket) -> Result<bool> {
    let (mut found, mut kind) = (false, [0]);
    loop {
        sink.recv(&mut kind).context("a plain datagram")?;
        if kind[0] == 0 {
            return Ok(found);
        }
        found = true;
    }
}
