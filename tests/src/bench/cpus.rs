//! The CPUs of a load: where its processes run.

use std::{path::Path, thread};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A machine may be busy; the load goes before what others do on its CPUs.
const NICE: &str = "-10";

/// The places of client and server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Placement {
    /// Both on one CPU, with all that the kernel does for them.
    #[default]
    #[serde(rename = "1")]
    #[value(name = "1")]
    One,
    /// Each on a separate CPU.
    #[serde(rename = "2")]
    #[value(name = "2")]
    Two,
    /// On all CPUs, as the scheduler likes.
    Any,
}

/// The CPUs of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cpus {
    pub(super) client: Vec<usize>,
    pub(super) server: Vec<usize>,
}

impl Cpus {
    /// Chooses CPUs of this machine. `first` is the client's; without it that is the last one.
    pub(super) fn choose(placement: Placement, first: Option<usize>) -> Result<Self> {
        Self::of(placement, first, thread::available_parallelism()?.get())
    }

    fn of(placement: Placement, first: Option<usize>, count: usize) -> Result<Self> {
        let client = first.unwrap_or(count - 1);
        ensure!(
            client < count,
            "--cpu={client}: the CPUs of this machine are 0 to {}",
            count - 1
        );
        Ok(match placement {
            Placement::One => Self {
                client: vec![client],
                server: vec![client],
            },
            Placement::Two => {
                ensure!(count > 1, "--cpus=2: this machine has one CPU");
                Self {
                    client: vec![client],
                    server: vec![(client + count - 1) % count],
                }
            }
            Placement::Any => {
                ensure!(first.is_none(), "--cpu has no meaning with --cpus=any");
                Self {
                    client: (0..count).collect(),
                    server: (0..count).collect(),
                }
            }
        })
    }

    /// All of them, as `taskset` takes them.
    pub(super) fn list(&self) -> String {
        let mut all = [self.client.as_slice(), &self.server].concat();
        all.sort_unstable();
        all.dedup();
        list(&all)
    }
}

fn list(cpus: &[usize]) -> String {
    cpus.iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

/// The command line of a worker on these CPUs.
pub(super) fn pinned(cpus: &[usize], program: &Path, args: &[&str]) -> Vec<String> {
    let (cpus, program) = (list(cpus), program.display().to_string());
    let before = ["nice", "-n", NICE, "taskset", "-c", &cpus, &program];
    before
        .iter()
        .chain(args)
        .map(|part| (*part).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(client: &[usize], server: &[usize]) -> Cpus {
        Cpus {
            client: client.to_vec(),
            server: server.to_vec(),
        }
    }

    #[test]
    fn client_and_server_are_together_apart_or_anywhere() -> Result<()> {
        assert_eq!(Cpus::of(Placement::One, None, 4)?, cpus(&[3], &[3]));
        assert_eq!(Cpus::of(Placement::Two, None, 4)?, cpus(&[3], &[2]));
        assert_eq!(Cpus::of(Placement::Two, Some(0), 2)?, cpus(&[0], &[1]));
        let any = Cpus::of(Placement::Any, None, 2)?;
        assert_eq!(
            (any.list(), cpus(&[1], &[0]).list()),
            ("0,1".to_owned(), "0,1".to_owned())
        );
        for (placement, first, count) in [(Placement::Two, None, 1), (Placement::One, Some(2), 2)] {
            assert!(
                Cpus::of(placement, first, count).is_err(),
                "{placement:?} {first:?} {count}"
            );
        }
        Ok(())
    }
}
