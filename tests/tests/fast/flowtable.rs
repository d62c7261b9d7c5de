//! A flowtable of nftables, by which administrators let established flows skip the rules. Its hook
//! at the ingress of a device comes after the programs. These tests run on kernels of Debian, by
//! `cargo xtask test --kernel`.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::{program::Program, reason::Reason};
use flannel_tests::{
    Node, eventually,
    fast::{
        Conversation, Family, FastLab,
        arrivals::{Arrival, Arrivals},
    },
    kernel::conntrack::{self, Connection},
    load::rr::Protocol,
    no_agent::Talk,
    not_run, throughout,
};

use super::talks::talks;

const RULES: &str = "\
table inet skip {
  flowtable ft \
  { hook ingress priority 0; devices = { eth0, flannel.1, flannel-v6.1, vethp1, vethp2 }; }
  chain forward { type filter hook forward priority 0; meta l4proto { tcp, udp } flow add @ft; }
}";

/// Seconds after which a flowtable forgets a silent flow. The kernel's own value is 30.
const TIMEOUT: u64 = 3;
/// A conversation of that length outlives a flow that nothing refreshes.
const LONG: Duration = Duration::from_secs(4 * TIMEOUT);
/// The longest time until a flow is refreshed, with a margin for a busy machine.
const INTERVAL: Duration = Duration::from_secs(5);

#[test]
fn flows_go_on_with_a_flowtable() -> Result<()> {
    if !Path::new("/proc/sys/net/netfilter/nf_flowtable_tcp_timeout").exists() {
        not_run(
            "mode fast with a flowtable",
            "this kernel has no flowtables",
        );
        return Ok(());
    }
    let lab = FastLab::new("fast-ft", &[])?;
    let mut talks = talks(&lab)?;
    let tables = during(&mut talks, || {
        let tables = [
            Flowtable::install(&lab.nodes.a)?,
            Flowtable::install(&lab.nodes.b)?,
        ];
        tables.iter().try_for_each(|table| table.wait_flows(8))?;
        Ok(tables)
    })
    .context("a flowtable that comes")?;
    is_left_to_the_flowtable(&lab, &mut talks)?;
    tables.iter().try_for_each(Flowtable::wait_empty)?;
    exchange(&mut talks).context("after a silence longer than the timeout")?;
    drop(talks);
    for family in Family::ALL {
        modes_agree(&lab, &tables, family).with_context(|| format!("{family:?}"))?;
        is_closed(&lab, &tables, family).with_context(|| format!("a close, {family:?}"))?;
    }
    is_replayed_without(&lab, &tables)
}

/// A flowtable of a node, and the rule by which established flows enter it.
struct Flowtable<'a>(&'a Node);

impl<'a> Flowtable<'a> {
    fn install(node: &'a Node) -> Result<Self> {
        for protocol in ["tcp", "udp"] {
            node.sh(&format!(
                "sysctl -qw net.netfilter.nf_flowtable_{protocol}_timeout={TIMEOUT}"
            ))?;
        }
        node.nft(RULES)?;
        Ok(Self(node))
    }

    fn remove(&self) -> Result<()> {
        self.0.sh("nft delete table inet skip").map(drop)
    }

    fn flows(&self) -> Result<Vec<Connection>> {
        let mut connections = conntrack::table(self.0)?;
        connections.retain(|connection| connection.is_offloaded);
        Ok(connections)
    }

    /// Waits until the flowtable has at least `count` flows.
    fn wait_flows(&self, count: usize) -> Result<()> {
        eventually("flows of the flowtable", INTERVAL, || {
            let flows = self.flows()?;
            ensure!(flows.len() >= count, "{flows:#?}");
            Ok(())
        })
    }

    /// Waits until it has none.
    fn wait_empty(&self) -> Result<()> {
        eventually(
            "a flowtable without flows",
            Duration::from_secs(2 * TIMEOUT),
            || {
                let flows = self.flows()?;
                ensure!(flows.is_empty(), "{flows:#?}");
                Ok(())
            },
        )
    }
}

/// Does something while messages of each conversation go there and back. None is lost.
fn during<T>(talks: &mut [(Family, Conversation)], act: impl FnOnce() -> Result<T>) -> Result<T> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let exchange = |(family, talk): &mut (Family, Conversation)| -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                talk.exchange(10)
                    .with_context(|| format!("{family:?}, {talk:?}"))?;
            }
            Ok(())
        };
        let threads: Vec<_> = talks
            .iter_mut()
            .map(|talk| scope.spawn(move || exchange(talk)))
            .collect();
        let done = act();
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("no panic")?;
        }
        done
    })
}

fn exchange(talks: &mut [(Family, Conversation)]) -> Result<()> {
    talks.iter_mut().try_for_each(|(family, talk)| {
        talk.exchange(10)
            .with_context(|| format!("{family:?}, {talk:?}"))
    })
}

/// Conversations that the flowtable has go on for longer than its timeout. No packet of them is
/// learned, because conntrack has not seen it.
fn is_left_to_the_flowtable(lab: &FastLab, talks: &mut [(Family, Conversation)]) -> Result<()> {
    let untracked = || {
        lab.maps[0]
            .stats
            .get(Program::ToTunnel, Reason::Untracked)
            .map(|counter| counter.packets)
    };
    let (before, replayed) = (untracked()?, lab.replayed()?);
    throughout("messages there and back", LONG, || exchange(talks))?;
    let (after, replayed_after) = (untracked()?, lab.replayed()?);
    let [left, replayed] = [
        after - before,
        (replayed_after[0] - replayed[0]) + (replayed_after[1] - replayed[1]),
    ];
    ensure!(
        left > 100 && left > 10 * replayed,
        "{left} packets by the flowtable, {replayed} by the programs"
    );
    Ok(())
}

/// Conversations that begin with the flowtable in place: both ends see the same packets in each
/// mode.
fn modes_agree(lab: &FastLab, tables: &[Flowtable<'_>; 2], family: Family) -> Result<()> {
    let arrivals = Arrivals::capture(lab, family)?;
    let mut seen: Vec<BTreeSet<Arrival>> = Vec::new();
    for mode in ["kernel", "fast"] {
        lab.set_mode(mode)?;
        tables.iter().try_for_each(Flowtable::wait_empty)?;
        arrivals.take();
        let open = |protocol| {
            Conversation::open(protocol, &lab.near, &lab.far, family.end(&lab.far)?, None)
        };
        let mut talks = [
            (family, open(Protocol::Tcp)?),
            (family, open(Protocol::Udp)?),
        ];
        during(&mut talks, || {
            tables.iter().try_for_each(|table| table.wait_flows(2))
        })
        .context(mode)?;
        throughout("messages there and back", INTERVAL, || exchange(&mut talks)).context(mode)?;
        seen.push(arrivals.take());
    }
    ensure!(
        !seen[0].is_empty() && seen[1] == seen[0],
        "kernel, fast: {seen:#?}"
    );
    Ok(())
}

/// Both nodes see the end of a connection, and the same ports are another connection at once.
fn is_closed(lab: &FastLab, tables: &[Flowtable<'_>; 2], family: Family) -> Result<()> {
    let (from, to) = (
        SocketAddr::new(family.of(&lab.near)?, 45_678),
        family.end(&lab.far)?,
    );
    for _ in 0..2 {
        let mut talk = [(
            family,
            Conversation::Tcp(Talk::open_from(&lab.near, from, &lab.far, to, None)?),
        )];
        during(&mut talk, || {
            tables.iter().try_for_each(|table| table.wait_flows(1))
        })?;
        if let [(_, Conversation::Tcp(Talk { client, server, .. }))] = talk {
            // Closed by the server first, so that the client's port is free at once.
            drop(server);
            drop(client);
        }
        for table in tables {
            eventually("a closed connection", Duration::from_secs(5), || {
                let connections = conntrack::table(table.0)?;
                let mut ours = connections
                    .iter()
                    .filter(|connection| connection.is_between(from, to));
                let states = ["TIME_WAIT", "CLOSE"].map(Some);
                ensure!(
                    ours.all(|connection| states.contains(&connection.state.as_deref())),
                    "{connections:#?}"
                );
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// A conversation that the flowtable had is replayed once the flowtable is gone.
fn is_replayed_without(lab: &FastLab, tables: &[Flowtable<'_>; 2]) -> Result<()> {
    let open = |family: Family| {
        Conversation::open(
            Protocol::Udp,
            &lab.near,
            &lab.far,
            family.end(&lab.far)?,
            None,
        )
    };
    let mut talks = [
        (Family::V4, open(Family::V4)?),
        (Family::V6, open(Family::V6)?),
    ];
    during(&mut talks, || {
        tables.iter().try_for_each(|table| table.wait_flows(2))?;
        tables.iter().try_for_each(Flowtable::remove)
    })
    .context("a flowtable that goes")?;
    talks.iter_mut().try_for_each(|(family, talk)| {
        lab.until_replayed(|messages| talk.exchange(messages))
            .with_context(|| format!("{family:?}"))
    })
}
