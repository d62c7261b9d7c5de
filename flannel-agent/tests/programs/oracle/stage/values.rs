//! The oracle's notions as values of the maps.

use flannel_common::{
    abi::{
        entry_state::EntryState,
        peer::{PathProbe, PeerEntry},
        tick::tick,
    },
    flow::{Egress, Flow, FlowAction},
    flow::{expiry::Expiry, flow_key::FlowKey},
    packet::{addr::Mac, inner::FrameAddresses},
};
use flannel_datapath::kernel::clock;

use crate::{
    fast::Words,
    oracle::world::{Known, Peer, Reached, Seen, State, Tuple, Way},
    packets::{LO, usual_arrival},
};

/// Long enough that nothing runs out while a world is used.
const LONG_NS: u64 = 600_000_000_000;
const LONG_TICKS: u32 = 600_000;

/// A peer as the agent writes it, with what the programs wrote.
pub(super) fn entry_of(peer: &Peer) -> PeerEntry {
    let reached = match peer.reached {
        Reached::Plainly => EntryState::PLAIN,
        Reached::ByTheKernel => 0,
        Reached::Directly => EntryState::DIRECT,
    };
    let word = EntryState::new(EntryState::VALID | reached, 3);
    let (now, other) = (
        clock::now_ns(),
        EntryState::new(EntryState::VALID | reached, 2),
    );
    let until = |word, until_ns, max_len| PathProbe {
        word,
        until_ns,
        max_len,
        ..PathProbe::default()
    };
    let seen = match peer.seen {
        Seen::Nothing => PathProbe::default(),
        Seen::UpTo(largest) => until(word, now + LONG_NS, largest),
        Seen::LongAgo(largest) => until(word, now - 1, largest),
        Seen::OfAnotherPath(largest) => PathProbe {
            hold_ns: now + LONG_NS,
            ..until(other, now + LONG_NS, largest)
        },
        Seen::Other => PathProbe {
            word,
            hold_ns: now + LONG_NS,
            ..PathProbe::default()
        },
    };
    PeerEntry {
        word,
        vtep: peer.vtep.into(),
        next_hop: peer.vtep.into(),
        mac: Mac(peer.mac),
        oif: if peer.by_underlay { LO } else { LO + 1 },
        mtu: peer.mtu,
        seen,
        ..PeerEntry::default()
    }
}

/// The kernel's flow hash of every flow.
const HASH: u32 = 0x1234_5678;

/// A flow as the programs write it.
pub(super) fn flow_of<A: Words>(known: &Known, generation: u32) -> (FlowKey<A>, Flow<A>) {
    let key = end::<A>(&known.enters, known.enters_by);
    let mac = |frame: &[u8; 12], at: usize| Mac(frame[at..at + 6].try_into().expect("six bytes"));
    let frame = |frame: &[u8; 12]| FrameAddresses::new(mac(frame, 0), mac(frame, 6));
    let action = FlowAction {
        out: end(&known.leaves, known.leaves_by),
        generation: if known.state == State::OtherGeneration {
            generation - 1
        } else {
            generation
        },
        entry: frame(&known.frame),
        exit: frame(&known.exit_frame),
        mtu: known.mtu,
        egress: match known.way {
            Way::Tunnel => Egress::TUNNEL,
            Way::Pod => Egress::POD,
            Way::Link => Egress::DIRECT,
            Way::Unknown => Egress(200),
        },
        ttl_step: known.ttl_step,
        tos: known.tos,
        ttl: known.ttl,
        takes_merged: known.takes_merged.into(),
        needs_mirror: known.needs_mirror.into(),
        egress_data: HASH,
        ..FlowAction::default()
    };
    let check = action.check(&key) ^ if known.state == State::Torn { 0x10 } else { 0 };
    let now = tick(clock::now_ns());
    let seen = match known.state {
        State::Expired => Expiry::until(check, now),
        State::Closed => Expiry::closed(check, now + LONG_TICKS),
        State::Expected => Expiry::NONE,
        _ => Expiry::until(check, now + LONG_TICKS),
    };
    let mirror = match known.state {
        State::OneSided => Expiry::until(check, now),
        _ => Expiry::until(check, now + LONG_TICKS),
    };
    let mut flow = Flow {
        seen,
        mirror,
        arrival: usual_arrival(),
        action,
        ..Flow::default()
    };
    if known.state == State::Unconfirmed {
        let later = now + LONG_TICKS;
        flow.stamp(check, later, later, Some(later));
    }
    if known.on_probation {
        flow.put_on_probation();
    }
    (key, flow)
}

/// The key of a flow.
pub(super) fn end<A: Words>(tuple: &Tuple, device: u32) -> FlowKey<A> {
    let [a, b] = tuple.ports.map(u16::to_be_bytes);
    FlowKey {
        source: A::of(tuple.source),
        destination: A::of(tuple.destination),
        ports: u32::from_ne_bytes([a[0], a[1], b[0], b[1]]),
        protocol: tuple.protocol.into(),
        device,
    }
}
