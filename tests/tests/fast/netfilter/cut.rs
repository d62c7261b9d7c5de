//! A rule or policy that forbids an established flow cuts it; the flow continues after its removal.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    eventually,
    fast::{Conversation, Family, FastLab},
    load::rr::Protocol,
    packet::{frame, wire::Capture},
    throughout,
};

/// The longest time until a flow is refreshed, with a margin for a busy machine.
const INTERVAL: Duration = Duration::from_secs(5);
/// After that long without an answer TCP tries again.
const RETRANSMISSION: Duration = Duration::from_secs(15);

/// Conversations of `near` with `far` that are replayed: by either protocol, over either family.
fn talks(lab: &FastLab) -> Result<Vec<Conversation>> {
    let mut talks = Vec::new();
    for family in Family::ALL {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let mut talk =
                Conversation::open(protocol, &lab.near, &lab.far, family.end(&lab.far)?, None)?;
            lab.until_replayed(|messages| talk.exchange(messages))?;
            talks.push(talk);
        }
    }
    Ok(talks)
}

/// Nothing comes through any more.
fn wait_cut(talks: &mut [Conversation]) -> Result<()> {
    for talk in talks {
        eventually("a flow that is cut", INTERVAL, || {
            ensure!(talk.exchange(20).is_err(), "{talk:?} still comes through");
            Ok(())
        })?;
    }
    Ok(())
}

/// All goes on, and is replayed.
fn wait_free(lab: &FastLab, talks: &mut [Conversation]) -> Result<()> {
    for talk in talks {
        eventually("a flow that goes on", RETRANSMISSION, || talk.exchange(1))?;
        lab.until_replayed(|messages| talk.exchange(messages))?;
    }
    Ok(())
}

/// A rule in a chain of FORWARD.
fn forward(family: Family, rule: &str) -> String {
    let nft = family.nft();
    format!(
        "table {nft} netpol {{\nchain forward {{\ntype filter hook forward priority \
         0;\n{rule}\n}}\n}}\n"
    )
}

/// nftables announces its changes: with the generation that begins then, no packet more is replayed
/// past the rule.
fn by_a_rule_of_nftables(lab: &FastLab, talks: &mut [Conversation]) -> Result<()> {
    let (agent, node) = (&lab.agents[0], &lab.nodes.a);
    let rules = |verb: &str| {
        Family::ALL.map(|family| match verb {
            "add" => Ok(forward(
                family,
                &format!("{} daddr {} drop", family.nft(), family.of(&lab.far)?),
            )),
            _ => Ok(format!("delete table {} netpol\n", family.nft())),
        })
    };
    let script = |verb: &str| rules(verb).into_iter().collect::<Result<String>>();
    let before = agent.generation()?;
    node.nft(&script("add")?)?;
    eventually("a new generation", INTERVAL, || {
        let now = agent.generation()?;
        ensure!(now != before, "{now}");
        Ok(())
    })?;
    for talk in &mut *talks {
        ensure!(
            talk.exchange(1).is_err(),
            "{talk:?} still comes through in the new generation"
        );
    }
    node.nft(&script("delete")?)?;
    wait_free(lab, talks)
}

/// A policy whose rule stays and whose set of addresses changes.
fn by_an_element_of_a_set(lab: &FastLab, talks: &mut [Conversation]) -> Result<()> {
    let node = &lab.nodes.b;
    let each = |make: &dyn Fn(Family) -> Result<String>| {
        Family::ALL
            .into_iter()
            .map(make)
            .collect::<Result<String>>()
    };
    let tables = each(&|family| {
        let (nft, version) = (family.nft(), if family == Family::V4 { 4 } else { 6 });
        let set = format!("table {nft} netpol {{\nset denied {{ type ipv{version}_addr; }}\n}}\n");
        Ok(set + &forward(family, &format!("{nft} saddr @denied drop")))
    })?;
    node.nft(&tables)?;
    wait_free(lab, talks)?;
    let element = |verb: &str| {
        each(&|family| {
            Ok(format!(
                "{verb} element {} netpol denied {{ {} }}\n",
                family.nft(),
                family.of(&lab.near)?
            ))
        })
    };
    node.nft(&element("add")?)?;
    wait_cut(talks)?;
    node.nft(&element("delete")?)?;
    wait_free(lab, talks)?;
    node.nft(&each(&|family| {
        Ok(format!("delete table {} netpol\n", family.nft()))
    })?)
}

/// Legacy iptables announces nothing: the flows' refresh meets the rule. It drops answers, not
/// questions.
fn by_a_rule_of_legacy_iptables(lab: &FastLab, talks: &mut [Conversation]) -> Result<()> {
    let change = |verb: &str| {
        Family::ALL.into_iter().try_for_each(|family| {
            let rule = format!(
                "{} {verb} FORWARD -s {} -j DROP",
                family.iptables(),
                family.of(&lab.far)?
            );
            lab.nodes.a.sh(&rule).map(drop)
        })
    };
    change("-I")?;
    wait_cut(talks)?;
    change("-D")?;
    wait_free(lab, talks)
}

/// Rules of OUTPUT that drop the tunnel's own packets.
fn by_a_rule_on_the_tunnel(lab: &FastLab, talks: &mut [Conversation]) -> Result<()> {
    let change = |verb: &str| {
        Family::ALL.into_iter().try_for_each(|family| {
            lab.nodes
                .a
                .sh(&format!(
                    "{} {verb} OUTPUT -p udp --dport 8472 -j DROP",
                    family.iptables()
                ))
                .map(drop)
        })
    };
    change("-I")?;
    wait_cut(talks)?;
    nothing_leaves(lab, talks)?;
    change("-D")?;
    wait_free(lab, talks)
}

/// IPsec policies for the tunnel: what they do not let pass in the clear does not leave in the
/// clear.
fn by_an_ipsec_policy(lab: &FastLab, talks: &mut [Conversation]) -> Result<()> {
    let change = |verb: &str, action: &str| {
        ["0.0.0.0/0", "::/0"].into_iter().try_for_each(|any| {
            let selector = format!("src {any} dst {any} proto udp dport 8472 dir out");
            lab.nodes
                .a
                .sh(&format!("ip xfrm policy {verb} {selector} {action}"))
                .map(drop)
        })
    };
    change("add", "action block")?;
    wait_cut(talks)?;
    nothing_leaves(lab, talks)?;
    change("delete", "")?;
    wait_free(lab, talks)
}

fn nothing_leaves(lab: &FastLab, talks: &mut [Conversation]) -> Result<()> {
    let is_tunnel = |frame: &[u8]| frame::is_tunnel(frame) || frame::is_tunnel_v6(frame);
    let capture = Capture::start(&lab.nodes.b, "eth0", is_tunnel)?;
    throughout("no tunnel packet", Duration::from_secs(1), || {
        for talk in &mut *talks {
            ensure!(talk.exchange(1).is_err(), "{talk:?} comes through again");
        }
        ensure!(capture.is_empty(), "{} packets", capture.len());
        Ok(())
    })
}

/// Each in turn, against the same conversations.
pub(crate) fn established_flows_are_cut_and_go_on(lab: &FastLab) -> Result<()> {
    let mut talks = talks(lab)?;
    by_a_rule_of_nftables(lab, &mut talks).context("a rule of nftables")?;
    by_an_element_of_a_set(lab, &mut talks).context("an element of a set of nftables")?;
    by_a_rule_of_legacy_iptables(lab, &mut talks).context("a rule of legacy iptables")?;
    by_a_rule_on_the_tunnel(lab, &mut talks).context("a rule on the tunnel's packets")?;
    by_an_ipsec_policy(lab, &mut talks).context("an IPsec policy")
}
