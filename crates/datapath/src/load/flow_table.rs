//! The number of flows that the tables of mode `fast` hold.
//!
//! The option sets it; otherwise it depends on the available memory: the machine's, or the limit of
//! the agent's cgroup, against which maps count. If the kernel has no memory for the tables, the
//! agent makes them smaller, because the eBPF datapath needs them. The maps take their memory when
//! they are created, in every mode: smaller ones for the other modes would make a mode switch a
//! reload, which only a running agent could do.

use std::{fmt, fs, path::Path};

use flannel_common::abi::maps::FLOWS_MAX;
use flannel_host::family::Family;

/// The fewest flows that are tried.
const FLOWS_MIN: u32 = 1000;
/// Bytes of a flow, with the kernel's share of an element.
const fn flow_bytes(family: Family) -> u64 {
    match family {
        Family::V4 => 328,
        Family::V6 => 400,
    }
}

/// The size of the table of each family, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowTable {
    /// Flows.
    pub flows: u32,
    /// The reason for this size.
    pub reason: SizeReason,
}

/// The reason for the size of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeReason {
    /// The option.
    Option,
    /// The memory of the machine, in bytes; none if it cannot be read.
    Machine(Option<u64>),
    /// The memory limit of the cgroup, in bytes.
    Limit(u64),
    /// The kernel had no memory for a table of `asked` flows.
    NoMemory {
        /// The flows.
        asked: u32,
    },
}

impl fmt::Display for SizeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        match self {
            Self::Option => f.write_str("--flow-table-size"),
            Self::Machine(Some(bytes)) => {
                write!(f, "by the machine's memory of {} MiB", bytes / MIB)
            }
            Self::Machine(None) => f.write_str("the machine's memory is not known"),
            Self::Limit(bytes) => write!(f, "by the cgroup's memory limit of {} MiB", bytes / MIB),
            Self::NoMemory { asked } => write!(
                f,
                "the kernel has no memory for {asked}; raise the memory limit"
            ),
        }
    }
}

impl FlowTable {
    /// The size to begin with.
    pub fn plan(asked: Option<u32>, families: &[Family]) -> Self {
        asked.map_or_else(
            || Self::fitting(machine_memory(), cgroup_limit(), families),
            |flows| Self {
                flows,
                reason: SizeReason::Option,
            },
        )
    }

    /// A thousandth of the machine's memory for each family, and an eighth of the limit for all.
    /// The agent itself needs most of what a limit leaves.
    fn fitting(machine: Option<u64>, limit: Option<u64>, families: &[Family]) -> Self {
        const FLOW_BYTES: u64 = 200;
        let count = |bytes: u64, each: u64| u32::try_from(bytes / each).unwrap_or(FLOWS_MAX);
        let by_machine =
            count(machine.unwrap_or(0) / 1000, FLOW_BYTES).clamp(FLOWS_MAX / 8, FLOWS_MAX);
        let all: u64 = families.iter().map(|family| flow_bytes(*family)).sum();
        match limit.map(|limit| (limit, count(limit / 8, all.max(1)).max(FLOWS_MIN))) {
            Some((limit, flows)) if flows < by_machine => Self {
                flows,
                reason: SizeReason::Limit(limit),
            },
            _ => Self {
                flows: by_machine,
                reason: SizeReason::Machine(machine),
            },
        }
    }

    /// Returns true if it may leave too little memory to the load of the programs: it was not
    /// chosen as a small part of the memory.
    pub(crate) const fn may_be_too_large(&self) -> bool {
        matches!(
            self.reason,
            SizeReason::Option | SizeReason::NoMemory { .. }
        )
    }

    /// Returns half the size, after the kernel had no memory for the whole. `None` if the size is
    /// already the smallest.
    pub(crate) fn halved(&self) -> Option<Self> {
        let asked = match self.reason {
            SizeReason::NoMemory { asked } => asked,
            _ => self.flows,
        };
        let flows = (self.flows / 2).max(FLOWS_MIN);
        (flows < self.flows).then_some(Self {
            flows,
            reason: SizeReason::NoMemory { asked },
        })
    }
}

/// The machine's memory, in bytes; none if it cannot be read.
fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?
        .trim()
        .strip_suffix("kB")?;
    kib.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns true if this process can verify several programs at the same time, or one while tools
/// run, without coming near a memory limit: the verifier takes up to 32 MiB for each, and `nft` as
/// much on a node with many Services.
pub fn memory_is_ample() -> bool {
    const AMPLE: u64 = 512 << 20;
    cgroup_limit().is_none_or(|limit| limit >= AMPLE)
        && machine_memory().is_none_or(|memory| memory >= AMPLE)
}

/// The memory limit of this process's cgroup and of those above it, in bytes, by version 1 or 2.
fn cgroup_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    limit_in(&groups, &|path| {
        fs::read_to_string(Path::new("/sys/fs/cgroup").join(path)).ok()
    })
}

/// The least limit of those files. A container may see its own group as the root, whatever the path
/// says.
fn limit_in(groups: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, file) = match controllers {
            "" => ("", "memory.max"),
            other if other.split(',').any(|name| name == "memory") => {
                ("memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let limit = |group: &Path| {
            read(&Path::new(root).join(group).join(file))?
                .trim()
                .parse::<u64>()
                .ok()
        };
        Path::new(path.trim_start_matches('/'))
            .ancestors()
            .filter_map(limit)
            .min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: [Family; 1] = [Family::V4];

    #[test]
    fn the_flow_table_follows_the_memory() {
        let flows = |memory| FlowTable::fitting(memory, None, &V4).flows;
        assert_eq!(flows(None), 16_384);
        assert_eq!(flows(Some(1 << 30)), 16_384);
        assert_eq!(flows(Some(8 << 30)), 42_949);
        assert_eq!(flows(Some(1 << 40)), 131_072);
    }

    #[test]
    fn a_limit_makes_it_smaller_and_never_larger() {
        let fitting = |limit: u64, families: &[Family]| {
            FlowTable::fitting(Some(24 << 30), Some(limit), families)
        };
        assert_eq!(
            fitting(40 << 20, &V4),
            FlowTable {
                flows: 15_984,
                reason: SizeReason::Limit(40 << 20)
            }
        );
        assert_eq!(fitting(40 << 20, &Family::BOTH).flows, 7_201);
        assert_eq!(fitting(1 << 20, &V4).flows, 1000);
        for unlimited in [1 << 40, 0x7fff_ffff_ffff_f000] {
            let planned = fitting(unlimited, &V4);
            assert_eq!(
                planned,
                FlowTable {
                    flows: 128_849,
                    reason: SizeReason::Machine(Some(24 << 30))
                }
            );
            assert!(!planned.may_be_too_large());
        }
    }

    #[test]
    fn halving_ends_and_remembers_what_there_was_no_memory_for() {
        let mut table = FlowTable {
            flows: 131_072,
            reason: SizeReason::Option,
        };
        let mut tried = Vec::new();
        while let Some(half) = table.halved() {
            tried.push(half.flows);
            assert_eq!(half.reason, SizeReason::NoMemory { asked: 131_072 });
            assert!(half.may_be_too_large());
            table = half;
        }
        assert_eq!(
            tried,
            [65_536, 32_768, 16_384, 8192, 4096, 2048, 1024, 1000]
        );
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let files = |path: &Path| {
            let limit = match path.to_str()? {
                "memory.max" | "kubepods/memory.max" => "max\n",
                "kubepods/pod1/memory.max" => "41943040\n",
                "memory/memory.limit_in_bytes" => "52428800\n",
                "memory/docker/a/memory.limit_in_bytes" => "9223372036854771712\n",
                _ => return None,
            };
            Some(limit.to_owned())
        };
        for (groups, limit) in [
            ("0::/kubepods/pod1/c\n", Some(41_943_040)),
            ("0::/kubepods\n", None),
            (
                "4:memory:/docker/a\n1:cpu:/docker/a\n0::/\n",
                Some(52_428_800),
            ),
            ("4:cpu,memory:/elsewhere/b\n", Some(52_428_800)),
            ("3:cpuset:/docker/a\n", None),
            ("nonsense", None),
        ] {
            assert_eq!(limit_in(groups, &files), limit, "{groups}");
        }
    }
}
