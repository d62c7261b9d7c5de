use flannel_common::{abi::peer::PathProbe, flow::FlowAction};

use super::*;

const NOW: Tick = 100_000;
const GENERATION: u32 = 7;

fn key() -> FlowKey<[u32; 1]> {
    FlowKey {
        source: [u32::from_ne_bytes([10, 244, 1, 5])],
        destination: [u32::from_ne_bytes([10, 96, 0, 1])],
        ports: u32::from_ne_bytes([0x9c, 0x40, 0, 80]),
        protocol: 6,
        device: 3,
    }
}

fn gate() -> Gate {
    let now_ns = u64::from(NOW) << 20;
    let config = NodeConfig {
        word: EntryState::new(EntryState::VALID, 1),
        heartbeat_ns: now_ns,
        confirmed: NOW,
        ..NodeConfig::default()
    };
    let settings = FastConfig {
        flags: FastConfig::TCP,
        interval: tick::ticks(2_000_000_000),
        ..FastConfig::default()
    };
    Gate {
        mode: ModeWord::new(Mode::Fast, None, GENERATION),
        config,
        settings,
        now_ns,
    }
}

/// Returns a flow into a pod, which counts as seen until `seen` ticks from now; its reverse flow
/// counts as seen until `mirror` ticks from now.
fn flow(seen: i32, mirror: Option<i32>) -> Flow<[u32; 1]> {
    let action = FlowAction {
        out: key(),
        generation: GENERATION,
        egress: Egress::POD,
        needs_mirror: 1,
        ..FlowAction::default()
    };
    let (mut flow, until) = (
        Flow {
            action,
            ..Flow::default()
        },
        |ticks| NOW.wrapping_add_signed(ticks),
    );
    flow.stamp(
        action.check(&key()),
        NOW - 1,
        until(seen),
        mirror.map(until),
    );
    flow
}

fn said(flow: &Flow<[u32; 1]>, gate: &Gate) -> (&'static str, String) {
    let row = FlowRow::new(&key(), flow, None, gate, |[word]| {
        Ipv4Addr::from(word.to_ne_bytes()).into()
    });
    (row.state, row.why.unwrap_or_default())
}

#[test]
fn ends_are_written_as_people_do() {
    let ends =
        ends(&key(), |[word]| Ipv4Addr::from(word.to_ne_bytes()).into()).map(|end| end.to_string());
    assert_eq!(ends, ["10.244.1.5:40000", "10.96.0.1:80"]);
}

/// A flow, its state, and the reason why it is not used.
type Unused = (Flow<[u32; 1]>, &'static str, &'static str);

fn flows_seen_on_one_way(good: &Flow<[u32; 1]>) -> Vec<Unused> {
    let mut half = *good;
    half.mirror = Expiry::until(good.action.check(&key()) ^ 2, NOW + 500);
    vec![
        (
            flow(500, None),
            "reverse_missing",
            "its way back was not seen",
        ),
        (
            flow(500, Some(-954)),
            "reverse_missing",
            "what was seen of its way back expired 1.0 s ago",
        ),
        (
            half,
            "reverse_missing",
            "what was seen of its way back belongs to an earlier entry with its key",
        ),
    ]
}

fn flows_that_are_not_fresh(good: Flow<[u32; 1]>) -> Vec<Unused> {
    let other = Flow {
        action: FlowAction {
            generation: 4,
            ..good.action
        },
        ..good
    };
    let mut older = other;
    older.stamp(other.action.check(&key()), NOW - 1, NOW + 500, None);
    let mut new = good;
    new.stamp(good.action.check(&key()), NOW, NOW + 500, Some(NOW + 500));
    let mut closed = good;
    closed.seen = Expiry::closed(good.action.check(&key()), NOW + 954);
    let (mut long_closed, mut recycled) = (good, good);
    long_closed.seen = Expiry::closed(good.action.check(&key()), NOW - 954);
    recycled.seen = Expiry::until(good.action.check(&key()) ^ 2, NOW + 500);
    vec![
        (
            flow(-2861, Some(500)),
            "refreshing",
            "what was seen of it expired 3.0 s ago",
        ),
        (
            new,
            "unconfirmed",
            "learned a moment ago; used once the agent has made sure that no program queues \
             packets",
        ),
        (
            older,
            "refreshing",
            "learned under generation 4, and 7 is in force",
        ),
        (
            closed,
            "flow_closed",
            "its connection was closed; not learned for another 1.0 s",
        ),
        (
            long_closed,
            "refreshing",
            "its connection was closed, and nothing was seen of it since",
        ),
        (
            recycled,
            "refreshing",
            "what was seen of it belongs to an earlier entry with its key",
        ),
        (
            Flow {
                seen: Expiry::NONE,
                ..good
            },
            "refreshing",
            "forgotten: a new connection began at its ends",
        ),
    ]
}

#[test]
fn a_flow_says_why_it_is_not_used() {
    let (good, gate) = (flow(500, Some(500)), gate());
    assert_eq!(said(&good, &gate), ("usable", String::new()));
    let unused = [flows_that_are_not_fresh(good), flows_seen_on_one_way(&good)].concat();
    for (flow, state, why) in unused {
        assert_eq!(said(&flow, &gate), (state, why.to_owned()));
    }
}

#[test]
fn what_the_node_lacks_comes_first() {
    let (good, gate) = (flow(-100, None), gate());
    let encap = Gate {
        mode: ModeWord::new(Mode::Encap, None, GENERATION),
        ..gate
    };
    assert_eq!(
        said(&good, &encap),
        ("mode_kernel", "mode encap is in force".to_owned())
    );
    let gone = Gate {
        config: NodeConfig {
            heartbeat_ns: 0,
            ..gate.config
        },
        ..gate
    };
    assert_eq!(said(&good, &gone).0, "agent_gone");
    let udp_only = Gate {
        settings: FastConfig {
            flags: FastConfig::UDP,
            ..gate.settings
        },
        ..gate
    };
    assert_eq!(
        said(&good, &udp_only),
        (
            "refreshing",
            "flows of its protocol are not learned now".to_owned()
        )
    );
}

#[test]
fn a_flow_into_the_tunnel_needs_its_peer() {
    let entry = PeerEntry {
        word: EntryState::new(EntryState::VALID, 1),
        ..PeerEntry::default()
    };
    let path = |entry| PeerPath {
        entry,
        ecmp_paths: Vec::new(),
    };
    let reason = |peer: Option<PeerEntry>| {
        peer_verdict(peer.map(path).as_ref(), 1).map_err(|(reason, _)| reason)
    };
    assert_eq!(reason(None), Err(Reason::NoPeer));
    assert_eq!(reason(Some(entry)), Err(Reason::PeerNotPlain));
    let word = EntryState::new(EntryState::VALID | EntryState::PLAIN, 1);
    let mut plain = PeerEntry { word, ..entry };
    assert_eq!(reason(Some(plain)), Err(Reason::PathUnseen));
    (plain.seen.word, plain.seen.until_ns) = (word, 2);
    assert_eq!(reason(Some(plain)), Ok(()));
    let word = EntryState::new(EntryState::VALID | EntryState::PLAIN | EntryState::ECMP, 1);
    let with_paths = PeerEntry { word, ..entry };
    let ecmp_path = EcmpPath {
        seen: PathProbe {
            word,
            until_ns: 2,
            ..PathProbe::NOTHING
        },
        ..EcmpPath::new(1500)
    };
    let reason = |ecmp_paths: &[EcmpPath]| {
        peer_verdict(
            Some(&PeerPath {
                entry: with_paths,
                ecmp_paths: ecmp_paths.to_vec(),
            }),
            1,
        )
        .map_err(|(reason, _)| reason)
    };
    assert_eq!(reason(&[EcmpPath::new(1500)]), Err(Reason::PathUnseen));
    assert_eq!(reason(&[EcmpPath::new(1500), ecmp_path]), Ok(()));
}

#[test]
fn times_are_short() {
    assert_eq!(
        [0, 949, 1950, 61_040].map(seconds),
        ["0.0 s", "0.9 s", "2.0 s", "61.0 s"]
    );
}
