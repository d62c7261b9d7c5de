//! The programs on a bench: loaded into their own pin directory, with maps that one test can write.

use std::{io::Write as _, sync::LazyLock};

use aya::{
    maps::{Array, Map, MapData},
    programs::{SchedClassifier, TestRun as _, TestRunOptions},
};
use flannel_common::abi::{
    entry_state::EntryState,
    maps::{PEERS, PEERS6},
    mode::Mode,
    node::NodeConfig,
    peer::{PeerEntry, VtepEntry},
    program::Program,
    reason::Reason,
};
use flannel_datapath::{
    DatapathError, Maps, PinRoot, Subnets, kernel::clock, load, maps::PeerMap, maps::flows,
};
use nix::unistd::Uid;

use crate::{
    packets::{self, Net},
    pool,
};

/// Offsets in `struct __sk_buff` ([include/uapi/linux/bpf.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/bpf.h)).
const SKB_LEN: usize = 192;
const SKB_MARK: usize = 8;
const SKB_PRIORITY: usize = 32;
const SKB_INGRESS_IFINDEX: usize = 36;
const SKB_IFINDEX: usize = 40;
const SKB_GSO_SIZE: usize = 176;

/// The loaded programs and their maps.
pub(crate) struct Bench {
    pins: PinRoot,
    pub(crate) maps: Maps,
}

/// One run of a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) action: i32,
    pub(crate) packet: Vec<u8>,
    pub(crate) reasons: Vec<Reason>,
}

/// Runs a test against the programs of a node in mode `encap`, configured and with its one peer in
/// both families.
pub(crate) fn on_bench(test: impl FnOnce(&mut Bench) + Send + 'static) {
    on_empty_bench(|bench| {
        bench.configure(&packets::BOTH);
        test(bench);
    });
}

/// Runs a test against loaded programs with empty maps, on a thread with its own network and mount
/// namespaces.
pub(crate) fn on_empty_bench(test: impl FnOnce(&mut Bench) + Send + 'static) {
    static REASON: LazyLock<Option<&str>> = LazyLock::new(cannot_run);
    if let Some(why) = *REASON {
        writeln!(std::io::stderr(), "NOT RUN: BPF program fixtures: {why}")
            .expect("stderr is open");
        return;
    }
    pool::run(test);
}

fn cannot_run() -> Option<&'static str> {
    // No directory can be made below /proc, so the loader neither loads nor mounts: it reports a
    // stub before that.
    let pins = PinRoot::new(std::path::Path::new("/proc/nowhere"));
    if !Uid::effective().is_root() {
        return Some("needs root");
    }
    matches!(
        load(&pins, &Program::ALL, Subnets::default(), None),
        Err(DatapathError::Stub)
    )
    .then_some("built with the stub object; use `cargo xtask test`")
}

impl Bench {
    /// Loads the programs and makes their maps.
    pub(crate) fn load(pins: &PinRoot) {
        load_for(pins, &packets::BOTH);
    }

    /// Opens what is loaded.
    pub(crate) fn open(pins: PinRoot) -> Self {
        let maps = Maps::open(&pins).expect("the maps open");
        Self { pins, maps }
    }

    /// Loads the programs again for a network of one family, with its one peer.
    pub(crate) fn restrict_to(&mut self, net: Net) {
        load_for(&self.pins, &[net]);
        self.maps = Maps::open(&self.pins).expect("the maps open");
        self.configure(&[net]);
    }

    /// Returns the directory in which the programs and their maps are pinned.
    pub(crate) const fn pins(&self) -> &PinRoot {
        &self.pins
    }

    fn configure(&mut self, nets: &[Net]) {
        self.maps.mode.set(Mode::Encap, None).expect("MODE");
        let family = |is_v4| {
            nets.iter()
                .find(|net| net.our_vtep.is_ipv4() == is_v4)
                .map(|net| net.family())
        };
        let [v4, v6] = [true, false].map(|is_v4| family(is_v4).unwrap_or_default());
        let config = NodeConfig {
            v4,
            v6,
            ..NodeConfig::default()
        };
        self.maps
            .config
            .write(config, clock::now_ns())
            .expect("CONFIG");
        for &net in nets {
            self.peer(net, net.peer(), EntryState::PLAIN);
        }
    }

    /// The peers of a family.
    pub(crate) const fn peers(&mut self, net: Net) -> &mut PeerMap {
        if net.our_vtep.is_ipv4() {
            &mut self.maps.peers
        } else {
            &mut self.maps.peers6
        }
    }

    /// Writes the one peer of the fixtures, as the agent does.
    pub(crate) fn peer(&mut self, net: Net, entry: PeerEntry, flags: u32) {
        self.peers(net)
            .write(packets::PEER_INDEX, entry, flags)
            .expect("a peer map");
        let vtep = VtepEntry {
            index: packets::PEER_INDEX,
            reserved: 0,
        };
        self.maps.vteps.write(entry.vtep, vtep).expect("VTEPS");
    }

    /// Leaves the one peer as an agent does that is killed over writing it.
    pub(crate) fn half_written(&mut self, net: Net, entry: PeerEntry) {
        let pin = self.pins.map(if net.our_vtep.is_ipv4() {
            PEERS
        } else {
            PEERS6
        });
        let map = MapData::from_pin(pin)
            .and_then(Map::from_map_data)
            .expect("a peer map");
        let mut map: Array<_, PeerEntry> = map.try_into().expect("an array of peers");
        let word = EntryState::new(0, 9);
        map.set(packets::PEER_INDEX, PeerEntry { word, ..entry }, 0)
            .expect("a peer map");
    }

    /// Writes the ports whose flows are not learned.
    pub(crate) fn helper_ports(&self, ports: &[u16]) {
        flows::write_helper_ports(&self.pins, ports).expect("HELPER_PORTS");
    }

    /// The peer's entry as it is now.
    pub(crate) fn entry(&mut self, net: Net) -> PeerEntry {
        self.peers(net)
            .get(packets::PEER_INDEX)
            .expect("a peer map")
    }

    /// Lets `to_underlay` see a packet of the kernel's own of this outer length.
    pub(crate) fn validate_path(&mut self, net: Net, inner_payload: usize) {
        let seen = self.run(
            Program::ToUnderlay,
            &net.tunnel_to_peer(&net.inner_to_peer(inner_payload)),
        );
        assert_eq!(seen.reasons, [Reason::PathSeen]);
    }

    /// Runs a program on a packet.
    pub(crate) fn run(&mut self, program: Program, packet: &[u8]) -> Outcome {
        self.run_with(program, packet, 0)
    }

    /// Runs a program on a packet that claims to be segmented.
    pub(crate) fn run_with(&mut self, program: Program, packet: &[u8], gso_size: u32) -> Outcome {
        self.run_in(program, packet, &context(gso_size))
    }

    /// Runs a program on a packet at a device of the bench's namespace.
    pub(crate) fn run_by(&mut self, program: Program, packet: &[u8], ifindex: u32) -> Outcome {
        let mut skb = context(0);
        skb[SKB_IFINDEX..SKB_IFINDEX + 4].copy_from_slice(&ifindex.to_ne_bytes());
        self.run_in(program, packet, &skb)
    }

    /// Runs a program on a packet that came into the host by a device and is on its way out.
    pub(crate) fn run_forwarded(&mut self, program: Program, packet: &[u8]) -> Outcome {
        let mut skb = context(0);
        skb[SKB_INGRESS_IFINDEX..SKB_INGRESS_IFINDEX + 4]
            .copy_from_slice(&packets::LO.to_ne_bytes());
        self.run_in(program, packet, &skb)
    }

    /// Runs a program on a packet with a mark and a priority.
    pub(crate) fn run_as(
        &mut self,
        program: Program,
        packet: &[u8],
        mark: u32,
        priority: u32,
    ) -> Outcome {
        let mut skb = context(0);
        for (at, value) in [(SKB_MARK, mark), (SKB_PRIORITY, priority)] {
            skb[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        self.run_in(program, packet, &skb)
    }

    fn run_in(&mut self, program: Program, packet: &[u8], skb: &[u8; SKB_LEN]) -> Outcome {
        let before = self.counts(program);
        let mut out = vec![0; packet.len() + 256];
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        options.data_out = Some(&mut out);
        options.ctx_in = Some(skb);
        let pinned =
            SchedClassifier::from_pin(self.pins.program(program)).expect("the program is pinned");
        let result = pinned
            .test_run(options)
            .expect("the kernel runs the program");
        out.truncate(result.data_size_out as usize);
        let after = self.counts(program);
        let reasons = Reason::ALL
            .into_iter()
            .filter(|&reason| after[reason as usize] > before[reason as usize]);
        Outcome {
            action: result.return_value.cast_signed(),
            packet: out,
            reasons: reasons.collect(),
        }
    }

    /// Mark and priority of a packet behind a program that it came to with 0x77 and 7.
    pub(crate) fn class_behind(&mut self, program: Program, packet: &[u8]) -> [u32; 2] {
        let mut skb = context(0);
        for (at, value) in [(SKB_MARK, 0x77_u32), (SKB_PRIORITY, 7)] {
            skb[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let mut behind = [0; SKB_LEN];
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        options.ctx_in = Some(&skb);
        options.ctx_out = Some(&mut behind);
        let pinned =
            SchedClassifier::from_pin(self.pins.program(program)).expect("the program is pinned");
        pinned
            .test_run(options)
            .expect("the kernel runs the program");
        [SKB_MARK, SKB_PRIORITY]
            .map(|at| u32::from_ne_bytes(behind[at..at + 4].try_into().expect("four bytes")))
    }

    /// Runs a program on a packet `times` times in a row. Returns every reason it gave.
    pub(crate) fn repeat(&mut self, program: Program, packet: &[u8], times: u32) -> Vec<Reason> {
        let before = self.counts(program);
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        options.repeat = times;
        let pinned =
            SchedClassifier::from_pin(self.pins.program(program)).expect("the program is pinned");
        pinned
            .test_run(options)
            .expect("the kernel runs the program");
        let after = self.counts(program);
        Reason::ALL
            .into_iter()
            .filter(|&reason| after[reason as usize] > before[reason as usize])
            .collect()
    }

    fn counts(&self, program: Program) -> Vec<u64> {
        Reason::ALL
            .map(|reason| self.maps.stats.get(program, reason).expect("STATS").packets)
            .to_vec()
    }
}

/// Loads all programs for networks of these families.
fn load_for(pins: &PinRoot, nets: &[Net]) {
    let subnets = |is_v4| {
        nets.iter()
            .any(|net| net.our_vtep.is_ipv4() == is_v4)
            .then_some(u64::from(packets::SUBNETS))
    };
    let [v4, v6] = [true, false].map(|is_v4| subnets(is_v4).unwrap_or(0));
    load(pins, &Program::ALL, Subnets { v4, v6 }, None).expect("the kernel takes the object");
}

/// The context of a test run: a packet that claims to be segmented, or whose `gso_size` is 0.
pub(crate) fn context(gso_size: u32) -> [u8; SKB_LEN] {
    let mut skb = [0; SKB_LEN];
    skb[SKB_GSO_SIZE..SKB_GSO_SIZE + 4].copy_from_slice(&gso_size.to_ne_bytes());
    skb
}

impl Outcome {
    /// The packet was left to the kernel as it was, for this reason and no other.
    #[track_caller]
    pub(crate) fn passed(&self, reason: Reason, packet: &[u8]) {
        assert_eq!(self.reasons, [reason]);
        assert_eq!(self.action, TC_ACT_UNSPEC);
        assert!(self.packet == packet, "the packet was changed");
    }
}

pub(crate) const TC_ACT_UNSPEC: i32 = -1;
pub(crate) const TC_ACT_SHOT: i32 = 2;
pub(crate) const TC_ACT_REDIRECT: i32 = 7;
