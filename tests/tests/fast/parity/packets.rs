//! Packet by packet: a datagram of every kind, sent in the middle of a flow that is replayed,
//! becomes what mode `kernel` makes of it. TTL, DSCP, ECN, fragments, what is too large, and what
//! the nodes answer.

use std::{net::UdpSocket, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::{program::Program, reason::Reason};
use flannel_tests::{
    Pair,
    cluster::topology::Stack,
    eventually,
    fast::{Counters, Family, fast_host_gw, fast_neighbours, fast_pair_of},
    packet::{PORTS, wire::inject},
};

use super::{
    cases::{Case, Route, classes, kinds},
    seen::{Seen, Watch, difference},
};

/// A pair of nodes, and what is seen of packets from one pod to the other.
struct Parity {
    watch: Watch,
    /// Counters of the programs on the near and on the far node.
    near: Counters,
    far: Counters,
    // An open port, so that the far pod sends no port unreachable messages.
    _listener: UdpSocket,
}

impl Parity {
    fn new(pair: &Pair, route: &Route) -> Result<Self> {
        let listener = pair
            .far
            .enter(|| UdpSocket::bind((route.to, PORTS[1])))?
            .context("a socket")?;
        Ok(Self {
            watch: Watch::new(pair, route)?,
            near: Counters::of(&pair.sender)?,
            far: Counters::of(&pair.receiver)?,
            _listener: listener,
        })
    }

    fn play(pair: &Pair, case: &Case) -> Result<()> {
        case.packets
            .iter()
            .try_for_each(|packet| inject(&pair.near, packet))
    }

    fn in_mode_kernel(&self, pair: &Pair, case: &Case) -> Result<Seen> {
        self.watch.clear();
        Self::play(pair, case)?;
        self.watch.settled(pair)
    }

    /// Sends the case behind packets that are replayed, until `from_pod` did with it what it
    /// should.
    fn in_mode_fast(&self, pair: &Pair, case: &Case) -> Result<Seen> {
        self.watch.clear();
        eventually("the program's verdict", Duration::from_secs(10), || {
            self.wait_replayed(pair)?;
            let count = || self.near.packets(Program::FromPod, case.reason);
            let (before, packets) = (count()?, case.packets.len() as u64);
            Self::play(pair, case)?;
            ensure!(
                count()? - before >= packets,
                "{} is {}",
                count()? - before,
                case.reason.name()
            );
            Ok(())
        })?;
        self.watch.settled(pair)
    }

    /// Sends plain packets until one was replayed on both nodes.
    fn wait_replayed(&self, pair: &Pair) -> Result<()> {
        let count = || -> Result<[u64; 2]> {
            let near = self.near.packets(Program::FromPod, Reason::Replayed)?;
            Ok([
                near,
                self.far.packets(Program::FromUnderlay, Reason::Replayed)?,
            ])
        };
        eventually(
            "a plain packet that is replayed",
            Duration::from_secs(10),
            || {
                let before = count()?;
                self.watch.send_plain(pair)?;
                let after = count()?;
                ensure!(after[0] > before[0] && after[1] > before[1], "{after:?}");
                Ok(())
            },
        )
    }

    fn expect_equal(&self, pair: &Pair, cases: &[Case]) -> Result<()> {
        pair.set_mode("kernel")?;
        let seen: Vec<Seen> = cases
            .iter()
            .map(|case| self.in_mode_kernel(pair, case).context(case.name))
            .collect::<Result<_>>()?;
        pair.set_mode("fast")?;
        pair.sender.wait_pod(&pair.near, true, true)?;
        pair.receiver.wait_pod(&pair.far, true, true)?;
        for (case, kernel) in cases.iter().zip(&seen) {
            let fast = self.in_mode_fast(pair, case).context(case.name)?;
            ensure!(
                !kernel.is_empty(),
                "{}: nothing was seen in mode kernel",
                case.name
            );
            ensure!(
                *kernel == fast,
                "{}:\n{}",
                case.name,
                difference(kernel, &fast)
            );
        }
        Ok(())
    }
}

/// The sizes a way takes, by family.
type Sizes = [(Family, usize); 2];
const TUNNEL: Sizes = [(Family::V4, 1450), (Family::V6, 1430)];
const DIRECT: Sizes = [(Family::V4, 1500), (Family::V6, 1500)];

/// Pods with a larger MTU than any way, on nodes that answer as often as they are asked.
fn prepared(pair: Pair) -> Result<Pair> {
    for pod in [&pair.near, &pair.far] {
        pod.node()
            .sh("sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0")?;
        pod.set_mtu(1600)?;
    }
    Ok(pair)
}

/// Cases of each family become what they become in mode kernel.
fn expect_equal(pair: &Pair, sizes: Sizes, cases: fn(&Route) -> Vec<Case>) -> Result<()> {
    sizes.into_iter().try_for_each(|(family, mtu)| {
        let route = Route::new(pair, family, mtu)?;
        Parity::new(pair, &route)?
            .expect_equal(pair, &cases(&route))
            .with_context(|| format!("{family:?}"))
    })
}

#[test]
fn packets_of_every_kind_become_what_they_become_in_mode_kernel() -> Result<()> {
    expect_equal(
        &prepared(fast_pair_of("fp-kinds", Stack::Dual, &[])?)?,
        TUNNEL,
        kinds,
    )
}

#[test]
fn packets_of_every_kind_for_a_neighbour_become_what_they_become_in_mode_kernel() -> Result<()> {
    let pair = prepared(fast_neighbours("fp-direct", Stack::Dual)?)?;
    expect_equal(&pair, DIRECT, kinds)?;
    expect_equal(&pair, DIRECT, classes)
}

#[test]
fn packets_of_every_kind_become_what_they_become_in_mode_kernel_with_host_gw() -> Result<()> {
    expect_equal(
        &prepared(fast_host_gw("fp-hostgw", Stack::Dual)?)?,
        DIRECT,
        kinds,
    )
}

/// DSCP and ECN, on a wire without congestion and on one that marks every packet that may be
/// marked.
#[test]
fn classes_and_congestion_are_carried_as_in_mode_kernel() -> Result<()> {
    let pair = prepared(fast_pair_of("fp-class", Stack::Dual, &[])?)?;
    expect_equal(&pair, TUNNEL, classes)?;
    let rules = "udp dport 8472 ip ecn set ce\n udp dport 8472 ip6 ecn set ce";
    let chain = format!("chain f {{\n type filter hook forward priority 0;\n {rules}\n }}");
    pair.net
        .r
        .nft(&format!("table inet congestion {{\n {chain}\n }}\n"))?;
    expect_equal(&pair, TUNNEL, classes).context("a congested wire")
}
