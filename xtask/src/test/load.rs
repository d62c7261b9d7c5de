//! The load of a test on the machine, and the choice of the test that may start next. Pure.
//!
//! Most end-to-end tests wait: for etcd, for a kernel timer, for an agent. Some compute for
//! seconds, and some measure time or fill the machine. One number of threads fits none of them, so
//! each test has a weight, and the weights of the running tests stay within the capacity of the
//! machine.

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
pub(super) struct Capacity(u32);

impl Capacity {
    /// The capacity of a machine with this number of CPUs.
    pub(super) fn of(cpus: usize) -> Self {
        Self(WAITING_PER_CPU * u32::try_from(cpus.max(1)).unwrap_or(u32::MAX / WAITING_PER_CPU))
    }

    /// The capacity that is left while the compiler runs.
    pub(super) const fn while_compiling(self) -> Self {
        Self(self.0 / 2)
    }

    /// The weight of a load on this machine.
    pub(super) const fn weight(self, load: Load) -> u32 {
        match load {
            Load::Waits => 1,
            Load::Computes => WAITING_PER_CPU / 2,
            Load::Heavy => WAITING_PER_CPU,
            Load::Alone => self.0,
        }
    }

    /// Returns true if there is room for a load with this sum of running weights. One fits an idle
    /// machine.
    pub(super) const fn has_room(self, running: u32, load: Load) -> bool {
        running == 0 || running + self.weight(load) <= self.0
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
    let weight = running.iter().map(|load| capacity.weight(*load)).sum();
    let only_alone = candidates
        .iter()
        .all(|candidate| candidate.load == Load::Alone);
    let awaits_heavy = !running.contains(&Load::Heavy)
        && candidates
            .iter()
            .any(|candidate| candidate.is_ready && candidate.load == Load::Heavy);
    candidates.iter().position(|candidate| {
        candidate.is_ready
            && capacity.has_room(weight, candidate.load)
            && (only_alone || candidate.load != Load::Alone)
            && (!awaits_heavy || candidate.load == Load::Heavy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ready(load: Load) -> Candidate {
        Candidate {
            load,
            is_ready: true,
        }
    }

    #[test]
    fn many_wait_and_few_compute() {
        let two = Capacity::of(2);
        assert!(two.has_room(7, Load::Waits) && !two.has_room(8, Load::Waits));
        assert!(two.has_room(6, Load::Computes) && !two.has_room(7, Load::Computes));
        assert!(two.has_room(4, Load::Heavy) && !two.has_room(5, Load::Heavy));
        assert!(two.has_room(0, Load::Alone) && !two.has_room(1, Load::Alone));
    }

    #[test]
    fn one_test_runs_on_the_smallest_machine() {
        let compiling = Capacity::of(1).while_compiling();
        assert!(compiling.has_room(0, Load::Heavy) && compiling.has_room(0, Load::Alone));
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
