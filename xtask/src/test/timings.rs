//! The time of each test: what it took, and the share of it for which it kept a CPU busy.

use std::{fs, time::Duration};

use anyhow::Context as _;

use super::load::Load;
use crate::workspace::Workspace;

/// The tests that the table names.
const NAMED: usize = 30;
/// The share of a CPU from which on a test does not wait.
const COMPUTES: f32 = 0.5;
/// The shortest test whose share says anything.
const SHORTEST: Duration = Duration::from_secs(2);

/// The time of one job.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    pub(super) name: String,
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
    pub(super) load: Load,
}

impl Timing {
    /// CPU time by wall time.
    fn share(&self) -> f32 {
        if self.wall.is_zero() {
            0.0
        } else {
            self.cpu.as_secs_f32() / self.wall.as_secs_f32()
        }
    }

    /// The fault of the weight of the test; `None` if it fits.
    fn misfit(&self) -> Option<&'static str> {
        if self.wall < SHORTEST || self.cpu.is_zero() {
            return None;
        }
        match self.load {
            Load::Waits if self.share() > COMPUTES => Some("it computes"),
            Load::Computes | Load::Heavy if self.share() < COMPUTES / 2.0 => Some("it waits"),
            _ => None,
        }
    }

    fn row(&self) -> String {
        let misfit = self.misfit().unwrap_or_default();
        let (wall, cpu) = (self.wall.as_secs_f32(), self.cpu.as_secs_f32());
        format!(
            "{wall:>7.1} s {cpu:>7.1} s {:>5.0} %  {:<8} {:<12} {}",
            100.0 * self.share(),
            word(self.load),
            misfit,
            self.name
        )
    }
}

const fn word(load: Load) -> &'static str {
    match load {
        Load::Waits => "waits",
        Load::Computes => "computes",
        Load::Heavy => "heavy",
        Load::Alone => "alone",
    }
}

/// The times of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Timings(Vec<Timing>);

impl Timings {
    /// Adds that of a job.
    pub(super) fn add(&mut self, timing: Timing) {
        self.0.push(timing);
    }

    /// Writes all of them, the longest first, to `target/xtask/timings.tsv`: seconds, seconds of a
    /// CPU, load and name. Returns the table for people.
    pub(super) fn keep(&mut self, workspace: &Workspace) -> anyhow::Result<String> {
        self.0.sort_by_key(|timing| std::cmp::Reverse(timing.wall));
        let path = workspace.logs()?.join("timings.tsv");
        let rows = self.0.iter().map(|timing| {
            let (wall, cpu) = (timing.wall.as_secs_f32(), timing.cpu.as_secs_f32());
            format!(
                "{wall:.2}\t{cpu:.2}\t{}\t{}\n",
                word(timing.load),
                timing.name
            )
        });
        fs::write(&path, rows.collect::<String>())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(self.table(&path.display().to_string()))
    }

    /// The longest tests, those whose weight does not fit, and the sums of each subject.
    fn table(&self, path: &str) -> String {
        let mut text = format!("timings: the longest {NAMED}; all are in {path}\n");
        text.push_str("     time   CPU time  share  weight   misfit       test\n");
        let misfits = self
            .0
            .iter()
            .skip(NAMED)
            .filter(|timing| timing.misfit().is_some());
        for timing in self.0.iter().take(NAMED).chain(misfits) {
            text += &timing.row();
            text.push('\n');
        }
        text.push_str("timings: by subject\n");
        let row = |(subject, number, wall, cpu): (&str, usize, Duration, Duration)| {
            format!(
                "{:>7.1} s {:>7.1} s  {number:>4} {subject}\n",
                wall.as_secs_f32(),
                cpu.as_secs_f32()
            )
        };
        text.extend(self.subjects().into_iter().map(row));
        text
    }

    fn subjects(&self) -> Vec<(&str, usize, Duration, Duration)> {
        let mut sums: Vec<(&str, usize, Duration, Duration)> = Vec::new();
        for timing in &self.0 {
            let subject = timing.name.split("::").next().unwrap_or_default();
            match sums.iter_mut().find(|(name, ..)| *name == subject) {
                Some((_, number, wall, cpu)) => {
                    *number += 1;
                    *wall += timing.wall;
                    *cpu += timing.cpu;
                }
                None => sums.push((subject, 1, timing.wall, timing.cpu)),
            }
        }
        sums.sort_by_key(|(_, _, wall, _)| std::cmp::Reverse(*wall));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(name: &str, wall: u64, cpu: u64, load: Load) -> Timing {
        Timing {
            name: name.to_owned(),
            wall: Duration::from_secs(wall),
            cpu: Duration::from_secs(cpu),
            load,
        }
    }

    #[test]
    fn a_test_with_the_wrong_weight_is_named() {
        assert_eq!(
            timing("a", 10, 8, Load::Waits).misfit(),
            Some("it computes")
        );
        assert_eq!(timing("a", 10, 2, Load::Waits).misfit(), None);
        assert_eq!(
            timing("a", 10, 1, Load::Computes).misfit(),
            Some("it waits")
        );
        assert_eq!(timing("a", 1, 1, Load::Waits).misfit(), None);
    }

    #[test]
    fn subjects_add_up() {
        let mut timings = Timings::default();
        for (name, wall) in [("tunnel::a", 3), ("lab::b", 9), ("tunnel::c", 4)] {
            timings.add(timing(name, wall, 1, Load::Waits));
        }
        let sums: Vec<_> = timings
            .subjects()
            .into_iter()
            .map(|(name, number, ..)| (name, number))
            .collect();
        assert_eq!(sums, [("lab", 1), ("tunnel", 2)]);
        assert!(
            timings
                .table("t.tsv")
                .contains("    7.0 s     2.0 s     2 tunnel"),
            "{}",
            timings.table("t.tsv")
        );
    }
}
