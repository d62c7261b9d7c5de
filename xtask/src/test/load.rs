//! The load of a test on the machine, and the choice of the test that may start next. Pure.
//!
//! Most end-to-end tests wait: for etcd, for a kernel timer, for an agent. Some compute for
//! seconds, and some measure time or fill the machine. One number of threads fits none of them, so
//! each test has a weight, and the weights of the running tests stay within the capacity of the
//! machine. While CPUs stay idle the capacity grows, but not the number of heavy tests.

/// The load of a test while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Load {
    /// Waits for most of its time.
    Waits,
    /// Keeps half a CPU busy.
    Computes,
    /// Keeps a CPU busy, or loses packets where others do.
    Heavy,
    /// Measures time, or takes the whole machine: starts last and runs without others.
    Alone,
}

/// The tests that a CPU carries at a time while they wait.
const WAITING_PER_CPU: u32 = 4;

/// The sum of weights that may run at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capacity {
    own: u32,
    /// The additional capacity while CPUs are idle.
    spare: u32,
}

impl Capacity {
    /// The capacity of a machine with this number of CPUs.
    pub(super) fn of(cpus: usize) -> Self {
        let cpus = u32::try_from(cpus.max(1)).unwrap_or(u32::MAX);
        Self {
            own: WAITING_PER_CPU.saturating_mul(cpus),
            spare: 0,
        }
    }

    /// The capacity that is left while the compiler runs.
    pub(super) const fn while_compiling(self) -> Self {
        Self {
            own: self.own / 2,
            ..self
        }
    }

    /// The capacity after a second in which this percentage of the CPUs' time was idle. It grows by
    /// one test at a time, because a test needs a few seconds to show its load.
    pub(super) fn after(self, idle: u64) -> Self {
        let spare = match idle {
            20.. => (self.spare + 1).min(2 * self.own),
            10.. => self.spare,
            _ => self.spare.saturating_sub(1),
        };
        Self { spare, ..self }
    }

    /// The weight of a load on this machine.
    pub(super) const fn weight(self, load: Load) -> u32 {
        match load {
            Load::Waits => 1,
            Load::Computes => WAITING_PER_CPU / 2,
            Load::Heavy => WAITING_PER_CPU,
            Load::Alone => self.own,
        }
    }

    /// Returns true if there is room for a load in addition to these. One fits an idle machine.
    pub(super) fn has_room(self, running: &[Load], load: Load) -> bool {
        let weight = |load: &Load| self.weight(*load);
        let heavy = running.iter().filter(|load| **load == Load::Heavy);
        let fits = |running: u32, room| running + self.weight(load) <= room;
        running.is_empty()
            || load != Load::Alone
                && fits(running.iter().map(weight).sum(), self.own + self.spare)
                && (load != Load::Heavy || fits(heavy.map(weight).sum(), self.own))
    }
}

/// A test that waits for its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) load: Load,
    /// Everything it needs has been built.
    pub(super) is_ready: bool,
}

/// Returns the index of the test to start next, of candidates in the order in which they should
/// start, while these run.
///
/// Light tests always find room, so a heavy one never would: while none runs, light tests wait for
/// the next heavy one. A test with [`Load::Alone`] waits until no other candidate is left, because
/// it would hold up more tests than would hold it up.
pub(super) fn next(
    candidates: &[Candidate],
    running: &[Load],
    capacity: Capacity,
) -> Option<usize> {
    let only_alone = candidates
        .iter()
        .all(|candidate| candidate.load == Load::Alone);
    let awaits_heavy = !running.contains(&Load::Heavy)
        && candidates
            .iter()
            .any(|candidate| candidate.is_ready && candidate.load == Load::Heavy);
    candidates.iter().position(|candidate| {
        candidate.is_ready
            && capacity.has_room(running, candidate.load)
            && (only_alone || candidate.load != Load::Alone)
            && (!awaits_heavy || candidate.load == Load::Heavy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITING: [Load; 12] = [Load::Waits; 12];

    const fn ready(load: Load) -> Candidate {
        Candidate {
            load,
            is_ready: true,
        }
    }

    #[test]
    fn many_wait_and_few_compute() {
        let two = |running: usize, load| Capacity::of(2).has_room(&WAITING[..running], load);
        assert!(two(7, Load::Waits) && !two(8, Load::Waits));
        assert!(two(6, Load::Computes) && !two(7, Load::Computes));
        assert!(two(4, Load::Heavy) && !two(5, Load::Heavy));
        assert!(two(0, Load::Alone) && !two(1, Load::Alone));
    }

    #[test]
    fn an_idle_machine_takes_more_tests_but_not_more_heavy_ones() {
        let mut capacity = Capacity::of(2);
        for _ in 0..4 {
            capacity = capacity.after(60);
        }
        assert!(capacity.has_room(&WAITING[..11], Load::Waits));
        assert!(!capacity.has_room(&WAITING[..12], Load::Waits));
        assert!(capacity.has_room(&[Load::Heavy, Load::Waits], Load::Heavy));
        assert!(!capacity.has_room(&[Load::Heavy, Load::Heavy], Load::Heavy));
        assert!(capacity.has_room(&[Load::Heavy, Load::Heavy], Load::Computes));
        assert!(!capacity.has_room(&[Load::Waits], Load::Alone));
        assert_eq!(capacity.after(15), capacity);
        assert!(!capacity.after(0).has_room(&WAITING[..11], Load::Waits));
        for _ in 0..100 {
            capacity = capacity.after(60);
        }
        assert!(!capacity.has_room(&[Load::Waits; 24], Load::Waits));
    }

    #[test]
    fn one_test_runs_on_the_smallest_machine() {
        let compiling = Capacity::of(1).while_compiling();
        assert!(compiling.has_room(&[], Load::Heavy) && compiling.has_room(&[], Load::Alone));
    }

    #[test]
    fn what_fits_starts() {
        let candidates = [ready(Load::Computes), ready(Load::Waits)];
        assert_eq!(
            next(&candidates, &[Load::Waits; 7], Capacity::of(2)),
            Some(1)
        );
        assert_eq!(
            next(&candidates, &[Load::Waits; 6], Capacity::of(2)),
            Some(0)
        );
        assert_eq!(next(&candidates, &[Load::Waits; 8], Capacity::of(2)), None);
    }

    #[test]
    fn one_heavy_test_runs_while_there_are_any() {
        let candidates = [ready(Load::Heavy), ready(Load::Waits)];
        assert_eq!(next(&candidates, &[Load::Waits; 5], Capacity::of(2)), None);
        assert_eq!(
            next(&candidates, &[Load::Waits; 4], Capacity::of(2)),
            Some(0)
        );
        assert_eq!(
            next(
                &candidates,
                &[Load::Heavy, Load::Waits, Load::Waits, Load::Waits],
                Capacity::of(2)
            ),
            Some(1)
        );
    }

    #[test]
    fn a_test_that_is_not_built_is_passed_over() {
        let waiting = Candidate {
            is_ready: false,
            ..ready(Load::Heavy)
        };
        assert_eq!(
            next(&[waiting, ready(Load::Waits)], &[], Capacity::of(2)),
            Some(1)
        );
        assert_eq!(next(&[waiting], &[], Capacity::of(2)), None);
    }

    #[test]
    fn what_runs_alone_comes_last() {
        let capacity = Capacity::of(2);
        let waiting = Candidate {
            is_ready: false,
            ..ready(Load::Waits)
        };
        assert_eq!(next(&[ready(Load::Alone), waiting], &[], capacity), None);
        assert_eq!(
            next(&[ready(Load::Alone), ready(Load::Alone)], &[], capacity),
            Some(0)
        );
        assert_eq!(next(&[ready(Load::Alone)], &[Load::Waits], capacity), None);
    }
}
