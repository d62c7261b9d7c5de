//! The loader over existing pins: what it adopts, and what it makes.

use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::{
    maps::{Array, MapData},
    programs::{ProgramInfo, SchedClassifier},
};
use flannel_common::abi::{
    maps::{
        ALL, ENTRANCES, ENTRANCES6, FLOW_HINTS, FLOW_HINTS6, FLOWS, FLOWS_MAX, FLOWS6,
        PEER_TRAFFIC, PEER_TRAFFIC6, PEERS, PEERS_MAX, PEERS6, PENDING, PENDING6, PROBATION,
        PROBATION6,
    },
    peer::PeerEntry,
    program::Program,
    reason::Reason,
};
use flannel_datapath::{DatapathError, Loaded, PinRoot, Subnets, load};

use crate::{
    bench::{Bench, on_bench},
    packets::{BOTH, SUBNETS, V4, V6},
};

const SAME: Subnets = Subnets {
    v4: SUBNETS as u64,
    v6: SUBNETS as u64,
};

/// Returns the name and the kernel's id of each pinned map.
fn ids(pins: &PinRoot) -> Vec<(&'static str, u32)> {
    ALL.map(|name| (name, info(pins, name).id())).to_vec()
}

fn info(pins: &PinRoot, name: &str) -> aya::maps::MapInfo {
    MapData::from_pin(pins.map(name))
        .and_then(|map| map.info())
        .expect("a pinned map")
}

/// Loads all programs once more.
fn load_again(pins: &PinRoot, subnets: Subnets, flows: Option<u32>) -> Loaded {
    load(pins, &Program::ALL, subnets, flows).expect("the kernel takes the object")
}

/// The maps that are others after another load.
fn replaced_maps(bench: &Bench, subnets: Subnets, flows: Option<u32>) -> Vec<&'static str> {
    let before = ids(bench.pins());
    load_again(bench.pins(), subnets, flows);
    before
        .into_iter()
        .zip(ids(bench.pins()))
        .filter(|(was, is)| was != is)
        .map(|(_, (name, _))| name)
        .collect()
}

/// On a kernel that is not older than what the tests need.
#[test]
fn the_kernel_does_all_that_helpers_may_refuse() {
    on_bench(|bench| {
        // With the record the programs would be adopted, and the kernel not asked.
        std::fs::remove_file(bench.pins().load_record()).ok();
        let loaded = load_again(bench.pins(), SAME, None);
        let verdict = loaded.refused.as_ref().map(|refusal| {
            (
                refusal.to_string(),
                refusal.verifier_log().unwrap_or_default(),
            )
        });
        assert_eq!((loaded.limit, verdict), (None, None));
    });
}

/// By which bpftool and perf name functions and lines.
#[test]
fn the_kernel_knows_the_types_of_every_program() {
    on_bench(|bench| {
        for program in Program::ALL {
            let info =
                ProgramInfo::from_pin(bench.pins().program(program)).expect("a pinned program");
            assert!(info.btf_id().is_some(), "{}", program.name());
        }
    });
}

/// Returns the kernel's id of each pinned program.
fn program_ids(pins: &PinRoot) -> Vec<u32> {
    let paths = Program::ALL
        .map(|program| pins.program(program))
        .into_iter()
        .chain([pins.poll_counter()]);
    paths
        .map(|path| ProgramInfo::from_pin(path).expect("a pinned program").id())
        .collect()
}

#[test]
fn a_second_load_adopts_every_map_and_program() {
    on_bench(|bench| {
        let before = program_ids(bench.pins());
        assert_eq!(replaced_maps(bench, SAME, None), [""; 0]);
        assert_eq!(program_ids(bench.pins()), before);
    });
}

/// As behind an update of the agent, whose record is another.
#[test]
fn a_second_load_without_the_record_of_the_first_adopts_every_map_and_loads_every_program() {
    on_bench(|bench| {
        let before = program_ids(bench.pins());
        std::fs::remove_file(bench.pins().load_record()).expect("the pin was there");
        assert_eq!(replaced_maps(bench, SAME, None), [""; 0]);
        let after = program_ids(bench.pins());
        assert!(
            before.iter().zip(&after).all(|(was, is)| was != is),
            "{before:?}, {after:?}"
        );
        load_again(bench.pins(), SAME, None);
        assert_eq!(
            program_ids(bench.pins()),
            after,
            "the record is there again"
        );
    });
}

/// A program that is gone, or another one, and a map that another process made.
#[test]
fn pins_that_are_not_those_of_the_record_are_loaded_again() {
    on_bench(|bench| {
        let pins = bench.pins();
        let changes: [fn(&PinRoot); 3] = [
            |pins| std::fs::remove_file(pins.poll_counter()).expect("the pin was there"),
            |pins| {
                std::fs::remove_file(pins.program(Program::FromPod)).expect("the pin was there");
                let mut other = SchedClassifier::from_pin(pins.program(Program::ToPod))
                    .expect("a pinned program");
                other
                    .pin(pins.program(Program::FromPod))
                    .expect("a new pin");
            },
            |pins| {
                std::fs::remove_file(pins.map(PEERS)).expect("the pin was there");
                let other = Array::<MapData, PeerEntry>::create(SUBNETS, 0).expect("a map");
                other.pin(pins.map(PEERS)).expect("a new pin");
            },
        ];
        for change in changes {
            let before = program_ids(pins);
            change(pins);
            load_again(pins, SAME, None);
            let after = program_ids(pins);
            assert!(
                before.iter().zip(&after).all(|(was, is)| was != is),
                "{before:?}, {after:?}"
            );
        }
    });
}

/// As behind a change of the backend.
#[test]
fn programs_that_are_not_needed_are_not_loaded_and_lose_their_pins() {
    on_bench(|bench| {
        let pins = bench.pins();
        let pinned = || {
            Program::ALL
                .into_iter()
                .filter(|program| pins.program(*program).exists())
                .collect::<Vec<_>>()
        };
        assert_eq!(pinned(), Program::ALL);
        let on_pods = [Program::FromPod, Program::ToPod];
        let load_these = || {
            load(pins, &on_pods, SAME, None).expect("the kernel takes the object");
            assert_eq!(pinned(), on_pods);
            on_pods.map(|program| {
                ProgramInfo::from_pin(pins.program(program))
                    .expect("a pinned program")
                    .id()
            })
        };
        assert_eq!(
            load_these(),
            load_these(),
            "the second load adopts what the first left"
        );
        load_again(pins, SAME, None);
        assert_eq!(pinned(), Program::ALL);
    });
}

/// An older agent knew one family. Its successor completes the set, and keeps the maps that the
/// programs use during that time.
#[test]
fn a_set_without_the_ipv6_peers_is_completed() {
    on_bench(|bench| {
        let before = ids(bench.pins());
        std::fs::remove_file(bench.pins().map(PEERS6)).expect("the pin was there");
        load_again(bench.pins(), SAME, None);
        let made: Vec<_> = before
            .into_iter()
            .zip(ids(bench.pins()))
            .filter(|(was, is)| was != is)
            .collect();
        assert_eq!(
            made.iter().map(|(was, _)| was.0).collect::<Vec<_>>(),
            [PEERS6]
        );
        for net in BOTH {
            assert_eq!(
                bench.entry(net).mac,
                net.peer().mac,
                "open maps and their entries stay"
            );
        }
    });
}

#[test]
fn another_network_of_one_family_leaves_the_others_peers() {
    on_bench(|bench| {
        assert_eq!(
            replaced_maps(bench, Subnets { v6: 1024, ..SAME }, None),
            [PEERS6, PEER_TRAFFIC6]
        );
        assert_eq!(
            replaced_maps(bench, Subnets { v4: 512, v6: 1024 }, None),
            [PEERS, PEER_TRAFFIC]
        );
        assert_eq!(
            [PEERS, PEERS6].map(|name| info(bench.pins(), name).max_entries()),
            [512, 1024]
        );
    });
}

#[test]
fn a_family_that_is_off_has_maps_of_one_element() {
    on_bench(|bench| {
        let of_family = [
            PEERS6,
            PEER_TRAFFIC6,
            FLOWS6,
            PROBATION6,
            FLOW_HINTS6,
            PENDING6,
            ENTRANCES6,
        ];
        assert_eq!(
            replaced_maps(bench, Subnets { v6: 0, ..SAME }, None),
            of_family
        );
        let capacities =
            |names: [&str; 7]| names.map(|name| info(bench.pins(), name).max_entries());
        assert_eq!(capacities(of_family), [1; 7]);
        assert!(
            capacities([
                PEERS,
                PEER_TRAFFIC,
                FLOWS,
                PROBATION,
                FLOW_HINTS,
                PENDING,
                ENTRANCES
            ])
            .iter()
            .all(|capacity| *capacity > 1)
        );
    });
}

/// The verifier does not look at the code of the other family, and the kernel does not keep it.
#[test]
fn a_family_that_is_off_costs_no_verification_and_its_packets_are_the_kernels() {
    on_bench(|bench| {
        let verified = |pins: &PinRoot| {
            let info =
                |program| ProgramInfo::from_pin(pins.program(program)).expect("a pinned program");
            let count = |program| {
                info(program)
                    .verified_instruction_count()
                    .expect("Linux 5.16")
            };
            Program::ALL.into_iter().map(count).sum::<u32>()
        };
        let both = verified(bench.pins());
        for (on, off) in [(V4, V6), (V6, V4)] {
            bench.restrict_to(on);
            let one = verified(bench.pins());
            assert!(one * 3 < both * 2, "{on:?}: {one} of {both} instructions");
            bench.validate_path(on, 100);
            assert_eq!(
                bench.run(Program::ToTunnel, &on.inner_to_peer(100)).reasons,
                [Reason::Encapsulated]
            );
            let packet = off.inner_to_peer(100);
            bench
                .run(Program::ToTunnel, &packet)
                .passed(Reason::OtherProtocol, &packet);
        }
    });
}

#[test]
fn the_flow_tables_are_as_large_as_asked() {
    on_bench(|bench| {
        assert_eq!(
            replaced_maps(bench, SAME, Some(1_000)),
            [FLOWS, FLOWS6, ENTRANCES, ENTRANCES6],
            "all others stay"
        );
        assert_eq!(
            [FLOWS, FLOWS6].map(|name| info(bench.pins(), name).max_entries()),
            [1_000; 2]
        );
    });
}

/// The kernel's account of a map, per element.
fn bytes_per_flow(pins: &PinRoot, name: &str) -> u64 {
    let map = MapData::from_pin(pins.map(name)).expect("a pinned map");
    let text = std::fs::read_to_string(format!(
        "/proc/self/fdinfo/{}",
        map.fd().as_fd().as_raw_fd()
    ))
    .expect("fdinfo");
    let field = |name: &str| -> u64 {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .expect("a field of a map");
        line.trim().parse().expect("a number")
    };
    field("memlock:") / field("max_entries:")
}

/// The page says what a flow takes; with the kernel's own share, which differs a little between
/// versions.
#[test]
fn a_flow_takes_as_much_memory_as_the_page_says() {
    const PAGE: &str = include_str!("../../../docs/guides/operations.md");
    on_bench(|bench| {
        load_again(bench.pins(), SAME, Some(FLOWS_MAX));
        let row = PAGE
            .lines()
            .find(|line| line.starts_with("| `FLOWS`"))
            .expect("a row");
        let said = row.split('|').nth(2).expect("a second cell").split(' ');
        // The first number is that of IPv4, and that of IPv6 follows "IPv4,".
        let said: Vec<u64> = said.filter_map(|word| word.parse().ok()).take(2).collect();
        assert_eq!(said.len(), 2, "{row}");
        for (names, said) in [[FLOWS, ENTRANCES], [FLOWS6, ENTRANCES6]]
            .into_iter()
            .zip(said)
        {
            let found: u64 = names
                .iter()
                .map(|name| bytes_per_flow(bench.pins(), name))
                .sum();
            assert!(
                found.abs_diff(said) <= 16,
                "{names:?} take {found} bytes for each flow: {row}"
            );
        }
    });
}

#[test]
fn a_network_of_too_many_subnets_is_named_with_its_family() {
    on_bench(|bench| {
        let before = ids(bench.pins());
        let many = u64::from(PEERS_MAX) + 1;
        for (subnets, family) in [
            (Subnets { v4: many, ..SAME }, "IPv4"),
            (Subnets { v6: many, ..SAME }, "IPv6"),
        ] {
            let Err(error @ DatapathError::TooManySubnets { .. }) =
                load(bench.pins(), &Program::ALL, subnets, None)
            else {
                panic!("{subnets:?} was taken");
            };
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("the {family} network has 131073 subnets")),
                "{error}"
            );
        }
        assert_eq!(ids(bench.pins()), before, "nothing was touched");
    });
}
