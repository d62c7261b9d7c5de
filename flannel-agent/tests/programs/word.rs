//! The words that agent and CLI both write: a choice of the operator is never lost, and never waits
//! for long.

use std::{
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use flannel_common::abi::{
    guard::{Checks, GuardMode, GuardWord},
    mode::Mode,
};
use flannel_datapath::{
    DatapathError, PinRoot,
    maps::ModeMap,
    maps::{guard::GuardMap, word::PATIENCE},
};
use nix::fcntl::{Flock, FlockArg};

use crate::bench::on_bench;

/// The number of threads that write all the time, each with its own handles.
const WRITERS: u32 = 4;
/// The number of the operator's switches during the writes.
const SWITCHES: usize = 200;

fn mode(pins: &PinRoot) -> ModeMap {
    ModeMap::open(pins).expect("MODE")
}

fn guard(pins: &PinRoot) -> GuardMap {
    GuardMap::open(pins).expect("GUARD")
}

/// Runs `write` over and over in separate threads until the other closure returns. No write may
/// fail.
fn while_others_write(write: impl Fn(&PinRoot) + Sync, pins: &PinRoot, meanwhile: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = || {
            while !done.load(Ordering::Relaxed) {
                write(pins);
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(writer)).collect();
        let result = catch_unwind(AssertUnwindSafe(meanwhile));
        done.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("every write goes through");
        }
        if let Err(panic) = result {
            resume_unwind(panic);
        }
    });
}

/// Waits until each writer has finished what it had begun.
fn let_others_write(pins: &PinRoot) {
    let (map, start) = (mode(pins), Instant::now());
    let generation = || map.get().expect("MODE").generation();
    let before = generation();
    while generation().wrapping_sub(before) < 4 * WRITERS {
        assert!(start.elapsed() < Duration::from_secs(20), "no one writes");
        thread::yield_now();
    }
}

#[test]
fn a_mode_that_the_operator_sets_is_not_lost_among_new_generations() {
    on_bench(|bench| {
        let pins = bench.pins();
        let new_generation = |pins: &PinRoot| mode(pins).bump().expect("a new generation");
        let mut map = mode(pins);
        while_others_write(new_generation, pins, || {
            for number in 0..SWITCHES {
                map.set(Mode::Fast, None).expect("MODE");
                map.set(Mode::Kernel, Some(Mode::Kernel)).expect("MODE");
                let_others_write(pins);
                let word = map.get().expect("MODE");
                assert_eq!(
                    (word.mode(), word.choice()),
                    (Mode::Kernel, Some(Mode::Kernel)),
                    "switch {number}"
                );
            }
        });
    });
}

/// Also where the agent had decided by an older choice and has not written yet.
#[test]
fn a_mode_decided_by_an_older_choice_is_not_put_in_force() {
    on_bench(|bench| {
        let pins = bench.pins();
        let (mut agent, mut operator) = (mode(pins), mode(pins));
        agent.set(Mode::Fast, None).expect("MODE");
        let seen = agent.get().expect("MODE").choice();
        operator
            .set(Mode::Kernel, Some(Mode::Kernel))
            .expect("MODE");
        let word = operator.get().expect("MODE");
        assert_eq!(agent.follow(Mode::Fast, seen).expect("MODE"), None);
        assert_eq!(operator.get().expect("MODE"), word, "nothing was written");
        assert_eq!(
            agent.follow(Mode::Kernel, word.choice()).expect("MODE"),
            Some(false)
        );
    });
}

#[test]
fn a_mode_of_the_guard_that_the_operator_sets_is_not_lost_while_the_agent_follows() {
    const OFF: Checks<GuardMode> = Checks {
        outer: GuardMode::Off,
        inner: GuardMode::Off,
    };
    on_bench(|bench| {
        let pins = bench.pins();
        // As the agent does, with a pause between what it reads and what it writes.
        let follow = |pins: &PinRoot| {
            let mut map = guard(pins);
            let choice = map.get().expect("GUARD").choice();
            let wanted = Checks {
                outer: choice.outer.unwrap_or(GuardMode::Enforce),
                ..OFF
            };
            map.follow(wanted, choice).expect("GUARD");
            mode(pins).bump().expect("a new generation");
        };
        let mut map = guard(pins);
        while_others_write(follow, pins, || {
            for number in 0..SWITCHES {
                for outer in [Some(GuardMode::Audit), Some(GuardMode::Off)] {
                    let choice = Checks { outer, inner: None };
                    let change = |word: GuardWord| GuardWord::new(word.in_force(), choice);
                    let unlocked = map.change_anyway(change).expect("GUARD");
                    assert!(unlocked.is_none(), "{unlocked:?}");
                    let_others_write(pins);
                    assert_eq!(
                        map.get().expect("GUARD").choice(),
                        choice,
                        "switch {number}"
                    );
                }
            }
        });
    });
}

/// A process that was stopped in the middle of a write keeps the lock.
#[test]
fn an_operator_waits_for_no_process_that_was_stopped_while_it_wrote() {
    on_bench(|bench| {
        let pins = bench.pins();
        let (mut agent, mut operator) = (mode(pins), mode(pins));
        agent.set(Mode::Fast, None).expect("MODE");
        let stopped = Flock::lock(
            File::open(pins.dir()).expect("the directory"),
            FlockArg::LockExclusive,
        );
        let stopped = stopped.map_err(|(_, errno)| errno).expect("the lock");
        let before = agent.get().expect("MODE");
        let refused = agent.bump().expect_err("the lock is held");
        assert!(matches!(refused, DatapathError::Locked { .. }), "{refused}");
        assert_eq!(agent.get().expect("MODE"), before, "nothing was written");
        let start = Instant::now();
        let unlocked = operator
            .set_anyway(Mode::Kernel, Some(Mode::Kernel))
            .expect("MODE")
            .expect("a reason");
        assert!(
            start.elapsed() < PATIENCE + Duration::from_secs(2),
            "{:?}",
            start.elapsed()
        );
        assert!(unlocked.to_string().contains("lslocks"), "{unlocked}");
        assert_eq!(agent.get().expect("MODE").mode(), Mode::Kernel);
        drop(stopped);
        assert!(
            operator
                .set_anyway(Mode::Fast, None)
                .expect("MODE")
                .is_none(),
            "the lock is free"
        );
        agent.bump().expect("the lock is free");
    });
}
