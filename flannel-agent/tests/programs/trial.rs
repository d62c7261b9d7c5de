//! Trials: the verdict of the attached programs, and no trace of the question.

use flannel_common::abi::{maps::PODS, mode::Mode, program::Program, reason::Reason};
use flannel_datapath::{DatapathError, load::probe, load::trial::Trial};
use flannel_host::family::Family;

use crate::{
    bench::{Bench, on_bench, on_empty_bench},
    packets::{BOTH, LO, PEER_INDEX},
};

/// Returns everything that the attached programs have counted, and what they know of the peers.
fn traces(bench: &mut Bench) -> Vec<String> {
    let stats = &bench.maps.stats;
    let counted = Program::ALL.into_iter().flat_map(|program| {
        Reason::ALL
            .map(|reason| stats.get(program, reason).expect("STATS"))
            .map(|counter| format!("{counter:?}"))
    });
    let mut all: Vec<String> = counted.collect();
    all.extend(BOTH.map(|net| {
        format!(
            "{:?}",
            bench.peers(net).get(PEER_INDEX).expect("a peer map")
        )
    }));
    all
}

#[test]
fn a_trial_says_what_the_programs_in_force_would_and_leaves_no_trace() {
    on_bench(|bench| {
        for net in BOTH {
            let mut trial = Trial::new(bench.pins(), Family::of(net.our_vtep), || {
                vec![Program::ToTunnel]
            })
            .expect("the kernel takes the object");
            assert!(trial.is_as_pinned(Program::ToTunnel, bench.pins()));
            let frame = net.inner_to_peer(100);
            let before = traces(bench);
            assert_eq!(
                trial.run(Program::ToTunnel, &frame, LO).expect("a run"),
                [Reason::PathUnseen]
            );
            assert_eq!(traces(bench), before);
            bench.validate_path(net, 100);
            let before = traces(bench);
            assert_eq!(
                trial.run(Program::ToTunnel, &frame, LO).expect("a run"),
                [Reason::Encapsulated]
            );
            assert_eq!(traces(bench), before);
            bench.maps.mode.set(Mode::Kernel, None).expect("MODE");
            assert_eq!(
                trial.run(Program::ToTunnel, &frame, LO).expect("a run"),
                [Reason::ModeKernel],
                "at once"
            );
            bench.maps.mode.set(Mode::Encap, None).expect("MODE");
        }
    });
}

/// The loader would pin a new map in the place of a missing one.
#[test]
fn a_pin_that_lacks_is_an_error_and_not_made() {
    on_bench(|bench| {
        let path = bench.pins().map(PODS);
        std::fs::remove_file(&path).expect("the pin goes");
        let error = Trial::new(bench.pins(), Family::V4, Vec::new).err();
        assert!(
            matches!(error, Some(DatapathError::NotPinned { .. })),
            "{error:?}"
        );
        assert!(!path.exists());
    });
}

#[test]
fn this_kernel_can_what_the_other_fixtures_need() {
    on_empty_bench(|_| {
        let accepted = probe::programs(None).expect("the kernel accepts the programs");
        assert_eq!(accepted.limit, None);
        accepted.polls.expect("polls are reported");
    });
}
