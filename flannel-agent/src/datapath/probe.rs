//! What this kernel lets the programs do, by trying it on maps and programs that are gone afterwards.

use aya::programs::RawTracePoint;
use flannel_common::{
    addr::{Addr, Mac},
    maps::{CONFIG, MODE, ONLY, PEERS},
    mode::{Mode, ModeWord},
    node::{FamilyConfig, NodeConfig},
    packet::PROTO_UDP,
    peer::{PathSeen, PeerEntry, Word},
    program::{COUNT_POLLS, Program},
    reason::Reason,
};

use super::{
    DatapathError, attach, btf, clock,
    frame::{Ends, frame},
    trial::Trial,
};

/// The loopback: the one device every network namespace has.
const LO: u32 = 1;
const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEERS_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Whether the kernel takes every program, and gives `to_tunnel` room for outer headers (5.13).
pub fn encapsulation() -> Result<(), DatapathError> {
    let mut trial = Trial::alone()?;
    Program::ALL.into_iter().try_for_each(|program| trial.load(program))?;
    let (now, word) = (clock::now_ns(), Word::new(Word::VALID | Word::PLAIN, 1));
    let family = FamilyConfig {
        network: Addr::from_v4_bytes([10, 0, 0, 0]),
        vtep_mac: OURS,
        subnet_shift: 8,
        subnet_count: 1,
        tunnel_ifindex: LO,
        underlay_ifindex: LO,
        source_port_min: 32_768,
        source_port_max: 60_999,
        ..FamilyConfig::default()
    };
    let seen = PathSeen { word, until_ns: u64::MAX, max_len: 1500, ..PathSeen::default() };
    let peer = PeerEntry { word, mac: PEERS_MAC, oif: LO, mtu: 1500, seen, ..PeerEntry::default() };
    let config = NodeConfig { word: Word::new(Word::VALID, 1), heartbeat_ns: now, v4: family, ..NodeConfig::default() };
    trial.write(CONFIG, ONLY, config)?;
    trial.write(PEERS, ONLY, peer)?;
    trial.write(MODE, ONLY, ModeWord::new(Mode::Encap, None, 1))?;
    let end = |last: u8| ([10, 0, 0, last], 4000).into();
    let ends = Ends { source: end(1), destination: end(2), protocol: PROTO_UDP };
    let reasons = trial.run(Program::ToTunnel, &frame(PEERS_MAC, OURS, &ends), LO)?;
    match reasons.as_slice() {
        [Reason::Encapsulated] => Ok(()),
        other => Err(DatapathError::Unable { reason: other.first().map_or("no verdict", |reason| reason.meaning()) }),
    }
}

/// Whether the kernel tells programs of its NAPI polls.
pub fn polls() -> Result<(), DatapathError> {
    let mut trial = Trial::alone()?;
    let program: &mut RawTracePoint = trial.raw_tracepoint(COUNT_POLLS)?;
    program
        .load()
        .and_then(|()| program.attach(attach::polls::TRACEPOINT))
        .map(drop)
        .map_err(DatapathError::program(COUNT_POLLS))
}

/// Whether programs know where a packet's conntrack entry is.
pub fn reads_conntrack() -> bool {
    btf::kernel_layout().nfct != 0
}
