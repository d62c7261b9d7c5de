//! Every program against an oracle: packets as they should be, and as they should not, by the
//! hundred thousand.
//!
//! A world (node, peers, flows; [`world`]) is staged in the maps ([`stage`]), packets are made of
//! it and damaged ([`generate`]), and each goes through the program and through the oracle
//! ([`expect`]), which is written from the documentation and shares no code with the programs.
//! Compared are verdict, every byte of the packet, counters of packets and bytes by reason, and
//! what became of flows and of what was seen of paths. Every reason a test run can bring about must
//! come up.
//!
//! Each run has its own seed, which is printed when something differs; `FLANNEL_ORACLE_SEED`
//! repeats it, and `FLANNEL_ORACLE_PACKETS` sets how many packets each program gets (100,000 at
//! least are the default).
//!
//! A test run does not cover: the target of a redirect; `tc_index`, and so notes, learning and
//! `self_sent`; VLAN tags outside the packet's bytes; checksums a device verified or summed
//! (`checksum_complete`); segments of a known kind (they are refused room); entries rewritten while
//! they are read; IP packets without a whole header, which the kernel does not run.

mod expect;
mod generate;
mod parse;
mod random;
mod run;
mod stage;
mod sums;
mod world;

use std::{
    collections::BTreeMap,
    env,
    hash::{BuildHasher as _, RandomState},
};

use aya::Pod;
use flannel_common::{
    abi::{
        program::Program::{
            self, FromL3Tunnel, FromPod, FromTunnel, FromUnderlay, ToL3Tunnel, ToPod, ToTunnel,
            ToUnderlay,
        },
        reason::Reason::{self, *},
    },
    flow::Flow,
    flow::flow_key::FlowKey,
};

use self::{
    generate::{Case, case, is_without_link, valid},
    random::Random,
    run::Runner,
    world::{Known, World},
};
use crate::{
    bench::{Bench, on_bench},
    fast::Words,
};

/// Packets of one world.
const OF_ONE_WORLD: u64 = 400;

/// The number of suites after which a reason that did not come up is missed.
const SUITES: u64 = 5;

/// By reason, how many packets came to it.
type Reached = BTreeMap<Reason, u64>;

/// Runs the suite on a program, which must come to each of these reasons and to no other.
fn agrees(program: Program, reasons: &'static [Reason]) {
    let seed =
        number("FLANNEL_ORACLE_SEED").unwrap_or_else(|| RandomState::new().hash_one(program));
    let packets = number("FLANNEL_ORACLE_PACKETS").unwrap_or(100_000);
    on_bench(move |bench| {
        let mut reached = Reached::new();
        let half = packets.div_ceil(2);
        let missed = |reached: &Reached| -> Vec<Reason> {
            reasons
                .iter()
                .filter(|reason| !reached.contains_key(reason))
                .copied()
                .collect()
        };
        // The rarest reasons come up a few times in a suite, so one suite in twenty misses one.
        for more in 0..SUITES {
            let executed =
                suite::<[u32; 1]>(bench, program, seed.wrapping_add(more), half, &mut reached)
                    + suite::<[u32; 4]>(
                        bench,
                        program,
                        seed.wrapping_add(more),
                        half,
                        &mut reached,
                    );
            println!(
                "{}: {executed} packets, seed {seed}: {reached:?}",
                program.name()
            );
            assert!(executed >= packets, "{executed} packets");
            if missed(&reached).is_empty() {
                break;
            }
        }
        let missed = missed(&reached);
        assert!(
            missed.is_empty(),
            "never came up: {missed:?}; {reached:?}, FLANNEL_ORACLE_SEED={seed}"
        );
        let others: Vec<_> = reached
            .keys()
            .filter(|reason| !reasons.contains(reason))
            .collect();
        assert!(others.is_empty(), "came up beside: {others:?}");
    });
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{variable}={value} is not a number")),
    )
}

/// Runs at least `packets` packets over one family: random cases in random worlds, and in one world
/// every cut and every flipped bit.
fn suite<A: Words>(
    bench: &mut Bench,
    program: Program,
    seed: u64,
    packets: u64,
    reached: &mut Reached,
) -> u64
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    let mut runner = Runner::<A>::new(bench, program);
    let mut random = Random::new(seed);
    while runner.executed < packets {
        let world = at_device(program, World::random(&mut random, A::NET));
        runner.stage.set(&world);
        for _ in 0..OF_ONE_WORLD {
            let case = case(&mut random, &world, program);
            require_agreement(program, seed, runner.run(&world, &case));
        }
        require_agreement(program, seed, runner.check_rest());
    }
    let world = at_device(program, World::in_order(&mut random, A::NET));
    runner.stage.set(&world);
    for _ in 0..4 {
        let whole = Case {
            gso: 0,
            ..valid(&mut random, &world, program)
        };
        for case in cuts(&whole).chain(flips(&whole)) {
            require_agreement(program, seed, runner.run(&world, &case));
        }
    }
    require_agreement(program, seed, runner.check_rest());
    runner.stage.clear();
    for (reason, count) in &runner.reached {
        *reached.entry(*reason).or_default() += count;
    }
    runner.executed
}

/// The world as the programs at a device have it: flows that come in without an Ethernet header
/// were learned without addresses.
fn at_device(program: Program, mut world: World) -> World {
    let peers = world.clone();
    let comes_in = |flow: &&mut Known| peers.peer_of(flow.enters.source).is_some();
    for flow in world
        .flows
        .iter_mut()
        .filter(comes_in)
        .filter(|_| is_without_link(program))
    {
        flow.frame = [0; 12];
    }
    world
}

#[track_caller]
fn require_agreement(program: Program, seed: u64, outcome: Result<(), String>) {
    if let Err(why) = outcome {
        panic!(
            "{} differs from the oracle: {why}\n\nFLANNEL_ORACLE_SEED={seed}",
            program.name()
        );
    }
}

/// The packet cut at every byte.
fn cuts(whole: &Case) -> impl Iterator<Item = Case> + '_ {
    (parse::ETHERNET..whole.bytes.len()).map(|len| Case {
        bytes: whole.bytes[..len].to_vec(),
        gso: 0,
        story: [&whole.story[..], &[format!("cut to {len} bytes")]].concat(),
    })
}

/// The packet with one bit of its headers flipped, for every bit.
fn flips(whole: &Case) -> impl Iterator<Item = Case> + '_ {
    let headers = whole.bytes.len().min(160);
    (0..headers * 8).map(|bit| {
        let mut bytes = whole.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let story = [
            &whole.story[..],
            &[format!("bit {} of byte {} flipped", bit % 8, bit / 8)],
        ]
        .concat();
        Case {
            bytes,
            gso: 0,
            story,
        }
    })
}

#[test]
fn from_pod() {
    agrees(
        FromPod,
        &[
            ModeKernel,
            AgentGone,
            NotConfigured,
            OtherProtocol,
            Malformed,
            NotPlain,
            OtherTransport,
            Fragment,
            TcpControl,
            NotLearned,
            FlowUnknown,
            Sampled,
            TooManyFlows,
            FlowClosed,
            ReverseMissing,
            Refreshing,
            FrameDiffers,
            TooBig,
            NoPeer,
            PeerNotPlain,
            PathUnseen,
            RoomRefused,
            Replayed,
            AgentLate,
            FieldsDiffer,
            Unconfirmed,
            Handshake,
            PodTunnel,
            RefusedPodTunnel,
            ChecksumUnverified,
        ],
    );
}

#[test]
fn from_tunnel() {
    agrees(
        FromTunnel,
        &[
            ModeKernel,
            AgentGone,
            NotConfigured,
            OtherProtocol,
            Malformed,
            NotPlain,
            OtherTransport,
            Fragment,
            TcpControl,
            NotLearned,
            FlowUnknown,
            Sampled,
            TooManyFlows,
            FlowClosed,
            ReverseMissing,
            Refreshing,
            NotFollowed,
            AgentLate,
            Unconfirmed,
            Handshake,
        ],
    );
}

#[test]
fn to_pod() {
    agrees(
        ToPod,
        &[
            ModeKernel,
            AgentGone,
            NotConfigured,
            OtherProtocol,
            Malformed,
            NotPlain,
            OtherTransport,
            Fragment,
            TcpControl,
            NotFollowed,
        ],
    );
}

#[test]
fn to_tunnel() {
    agrees(
        ToTunnel,
        &[
            ModeKernel,
            AgentGone,
            NotConfigured,
            OtherProtocol,
            NoPeer,
            PeerNotPlain,
            UnexpectedMac,
            PathUnseen,
            TooBig,
            GsoOther,
            RoomRefused,
            Encapsulated,
            Malformed,
            NotPlain,
            OtherTransport,
            Fragment,
            TcpControl,
        ],
    );
}

#[test]
fn from_underlay() {
    agrees(
        FromUnderlay,
        &[
            AgentGone,
            NotConfigured,
            NotTunnel,
            NotForUs,
            OuterFragment,
            BadVxlanHeader,
            OtherVni,
            InnerOtherMac,
            OtherProtocol,
            Malformed,
            InnerOtherSource,
            UnknownVtep,
            TunnelGood,
            NotPlain,
            OtherTransport,
            Fragment,
            OuterChecksum,
            OuterIpChecksum,
            OuterDiffers,
            TcpControl,
            FlowUnknown,
            FlowClosed,
            Refreshing,
            ReverseMissing,
            FrameDiffers,
            TooBig,
            Merged,
            Congested,
            RoomRefused,
            Replayed,
            OuterUnusual,
            RefusedVtep,
            RefusedSource,
            SenderUnnumbered,
            PeerChanging,
            Sampled,
            NotLearned,
            TooManyFlows,
            AgentLate,
            FieldsDiffer,
            Unconfirmed,
            Handshake,
        ],
    );
}

#[test]
fn to_underlay() {
    agrees(
        ToUnderlay,
        &[
            ModeKernel,
            AgentGone,
            NotConfigured,
            NotTunnel,
            OuterFragment,
            BadVxlanHeader,
            OtherVni,
            OtherProtocol,
            Malformed,
            NoPeer,
            PathFragmented,
            PathDiffers,
            PathHeld,
            PathSeen,
            GsoOther,
            NotPlain,
            OtherTransport,
            Fragment,
            TcpControl,
            NotFollowed,
        ],
    );
}

#[test]
fn from_l3_tunnel() {
    agrees(
        FromL3Tunnel,
        &[
            ModeKernel,
            AgentGone,
            NotConfigured,
            OtherProtocol,
            NoPeer,
            Malformed,
            NotPlain,
            OtherTransport,
            Fragment,
            TcpControl,
            NotLearned,
            FlowUnknown,
            Sampled,
            TooManyFlows,
            FlowClosed,
            Refreshing,
            ReverseMissing,
            FieldsDiffer,
            TooBig,
            Merged,
            Replayed,
            AgentLate,
            Unconfirmed,
            Handshake,
        ],
    );
}

#[test]
fn to_l3_tunnel() {
    agrees(
        ToL3Tunnel,
        &[
            ModeKernel,
            AgentGone,
            NotConfigured,
            OtherProtocol,
            NoPeer,
            Malformed,
            NotPlain,
            OtherTransport,
            Fragment,
            TcpControl,
            NotFollowed,
        ],
    );
}
