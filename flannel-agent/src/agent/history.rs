//! The task that keeps the rates of the last ten minutes: it reads the pinned counters every ten
//! seconds. Neither the main loop nor a packet waits for it.

use flannel_datapath::{DatapathError, PinRoot};
use flannel_flows::{
    history::{PERIOD, SharedHistory, Tick, TickRate},
    pod_traffic::link_counters,
};
use flannel_host::error_chain::chain;
use flannel_reconcile::SharedPeers;
use flannel_top::{
    Board, SortKey, TopSample,
    board::{HookRate, Rate, TrafficRate},
};
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

/// The most peers that are read: for a moment each takes some hundred bytes.
const MOST_PEERS: usize = 4096;

/// Reads until the task is dropped.
pub(super) async fn record(pins: PinRoot, peers: SharedPeers, history: SharedHistory) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = None;
    loop {
        ticks.tick().await;
        // Without pins, as in mode kernel, nothing else is read.
        let links = if before.is_some() {
            link_counters().await
        } else {
            None
        };
        let has_peers = peers.ways().into_values().sum::<usize>() <= MOST_PEERS;
        let pins = pins.clone();
        let read =
            spawn_blocking(move || TopSample::read_counters(&pins, links.as_ref(), has_peers));
        let Ok(read) = read.await else { return };
        match read {
            Ok(now) => {
                if before.is_some() {
                    history.record(tick(&Board::new(before.as_ref(), &now, SortKey::Address)));
                }
                before = Some(now);
            }
            Err(error) => {
                before = None;
                history.record(Tick::default());
                report(&error);
            }
        }
    }
}

fn report(error: &DatapathError) {
    if !matches!(error, DatapathError::NotPinned { .. }) {
        tracing::debug!("the history of rates has a gap: {}", chain(error));
    }
}

/// The rates of a board: packets in both directions.
fn tick(board: &Board) -> Tick {
    let sum = |rate: fn(&HookRate) -> Rate| {
        board
            .hooks
            .iter()
            .try_fold(0.0, |sum, hook| Some(sum + rate(hook)?))
    };
    let both = |to: TrafficRate, from: TrafficRate| TickRate {
        packets: to.packets.zip(from.packets).map(|(to, from)| to + from),
        bits: to.bits.zip(from.bits).map(|(to, from)| to + from),
    };
    let peer = board
        .peers
        .iter()
        .map(|row| (row.peer.subnet.to_string(), both(row.to, row.from)));
    let pod = board
        .pods
        .iter()
        .map(|row| (row.pod.veth.clone(), both(row.to, row.from)));
    let bits = sum(|hook| hook.bytes).map(|bytes| bytes * 8.0);
    Tick {
        node: TickRate {
            packets: sum(|hook| hook.packets),
            bits,
        },
        peers: peer.collect(),
        pods: pod.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use flannel_common::abi::{
        mode::Mode, program::Program, reason::Reason, stats::Counter, traffic::PeerTraffic,
    };
    use flannel_top::sample::PeerPlace;

    use super::*;

    fn sample(second: u64, packets: u64) -> TopSample {
        let counter = |packets| Counter {
            packets,
            bytes: packets * 100,
        };
        let traffic = PeerTraffic {
            sent: counter(packets),
            received: counter(packets * 2),
        };
        let peer = |subnet: &str, traffic| PeerPlace {
            subnet: subnet.parse().expect("a subnet"),
            vtep: [192, 0, 2, 1].into(),
            way: "tunnel",
            traffic,
        };
        TopSample {
            now_ns: second * 1_000_000_000,
            mode: Mode::Encap,
            heartbeat_age_ns: None,
            is_current: true,
            counters: BTreeMap::from([((Program::FromPod, Reason::Replayed), counter(packets))]),
            peers: vec![
                peer("10.244.2.0/24", Some(traffic)),
                peer("10.244.3.0/24", None),
            ],
            pods: Vec::new(),
            flows: Vec::new(),
        }
    }

    #[test]
    fn a_tick_has_both_directions_and_the_programs_together() {
        let tick = tick(&Board::new(
            Some(&sample(1, 0)),
            &sample(11, 1000),
            SortKey::Address,
        ));
        let rate = |packets: f64| TickRate {
            packets: Some(packets),
            bits: Some(packets * 800.0),
        };
        assert_eq!(tick.node, rate(100.0));
        let expected = [
            ("10.244.2.0/24", rate(300.0)),
            ("10.244.3.0/24", TickRate::default()),
        ];
        assert_eq!(
            tick.peers,
            expected.map(|(subnet, rate)| (subnet.to_owned(), rate))
        );
    }
}
