//! The flows that are learned, and how long an observation of them is trusted: the operator's
//! settings, and those of conntrack. Pure.

use std::fmt;

use flannel_common::{fast::FastConfig, tick};
use ipnet::IpNet;

/// The far ends of the flows that mode `fast` learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastScope {
    /// Pods of the cluster.
    Cluster,
    /// The same, and hosts outside its pod networks.
    #[default]
    All,
}

/// The operator's settings of mode `fast`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastOptions {
    /// True if it may set sysctls of conntrack.
    pub conntrack_liberal: bool,
    /// True if rules that judge single packets lower the mode.
    pub strict_rules: bool,
    /// With whom flows of pods are learned.
    pub scope: FastScope,
    /// Pods with such addresses stay out of it.
    pub exclude: Vec<IpNet>,
    /// Flows of each family; `None` goes by the machine's memory.
    pub flow_table_size: Option<u32>,
}

/// A sysctl of conntrack without which TCP is not learned.
#[derive(Debug)]
pub(super) struct Requirement {
    pub(super) name: &'static str,
    pub(super) need: SysctlValue,
}

/// The value a sysctl has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SysctlValue {
    /// 1.
    On,
    /// Seconds, at least as many as [`ESTABLISHED`].
    Established,
}

/// The timeout of an idle connection.
pub(super) const ESTABLISHED: &str = "net.netfilter.nf_conntrack_tcp_timeout_established";

/// Requirements of TCP on conntrack, which does not see the packets that are replayed.
pub(super) const REQUIREMENTS: [Requirement; 4] = [
    // Else the next packet it does see is out of window, so invalid, and not translated.
    Requirement { name: "net.netfilter.nf_conntrack_tcp_be_liberal", need: SysctlValue::On },
    // Else a reset after more than 2 GiB is invalid all the same.
    Requirement { name: "net.netfilter.nf_conntrack_tcp_ignore_invalid_rst", need: SysctlValue::On },
    // A packet out of window passes without an update of the tracker. So "data not acknowledged"
    // stays as it was when replay began, and the connection would be forgotten after this timeout
    // instead of the one of established connections.
    Requirement { name: "net.netfilter.nf_conntrack_tcp_timeout_unacknowledged", need: SysctlValue::Established },
    // Likewise a retransmission or a closed window that was seen last.
    Requirement { name: "net.netfilter.nf_conntrack_tcp_timeout_max_retrans", need: SysctlValue::Established },
];

/// The settings of conntrack in this network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Conntrack {
    /// It is in the kernel.
    pub(super) loaded: bool,
    /// Of [`REQUIREMENTS`], in their order; `None` where this kernel does not have the sysctl.
    pub(super) values: [Option<u32>; REQUIREMENTS.len()],
    /// [`ESTABLISHED`], in seconds.
    pub(super) established: Option<u32>,
    /// The shorter one of `nf_conntrack_udp_timeout` and `nf_conntrack_udp_timeout_stream`, in
    /// seconds.
    pub(super) udp_timeout: Option<u32>,
}

/// A requirement that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmet {
    name: &'static str,
    /// Its value and the one it needs; `None` where the kernel does not have it.
    values: Option<Change>,
    need: SysctlValue,
}

/// A value that is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) name: &'static str,
    pub(super) now: u32,
    pub(super) needed: u32,
}

impl Unmet {
    /// Returns true if the kernel has the sysctl, so that it can be set.
    pub const fn can_be_set(&self) -> bool {
        self.values.is_some()
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match (self.values, self.need) {
            (None, _) => write!(f, "this kernel has no {name}"),
            (Some(_), SysctlValue::On) => write!(f, "{name} is not 1"),
            (Some(change), SysctlValue::Established) => {
                write!(f, "{name} is {}, less than the {} of {ESTABLISHED}", change.now, change.needed)
            }
        }
    }
}

impl Conntrack {
    /// The requirements that do not hold. None without conntrack: then nothing tracks connections.
    fn unmet(&self) -> impl Iterator<Item = Unmet> {
        REQUIREMENTS.iter().zip(self.values).filter_map(|(Requirement { name, need }, now)| {
            let needed = match need {
                SysctlValue::On => Some(1),
                SysctlValue::Established => self.established,
            };
            let values = now.zip(needed).map(|(now, needed)| Change { name, now, needed });
            let holds = values.is_some_and(|Change { now, needed, .. }| match need {
                SysctlValue::On => now == needed,
                SysctlValue::Established => now >= needed,
            });
            (self.loaded && !holds).then_some(Unmet { name, values, need: *need })
        })
    }

    /// The reason for which TCP is not learned.
    pub(super) fn tcp_obstacle(&self) -> Option<Unmet> {
        self.unmet().next()
    }

    /// Changes by which TCP would be learned; none where they would not be enough.
    pub(super) fn changes(&self) -> Vec<Change> {
        self.unmet().map(|unmet| unmet.values).collect::<Option<_>>().unwrap_or_default()
    }

    /// The settings for the programs, but for the devices' MTUs.
    pub(super) fn settings(&self) -> FastConfig {
        let tcp = if self.tcp_obstacle().is_none() { FastConfig::TCP } else { 0 };
        let half = self.udp_timeout.map_or(u64::MAX, |seconds| u64::from(seconds) * 500_000_000);
        FastConfig {
            flags: FastConfig::UDP | tcp,
            interval: tick::ticks(half.min(FastConfig::INTERVAL_NS)),
            ..FastConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> Conntrack {
        let values = [1, 1, 432_000, 432_000].map(Some);
        Conntrack { loaded: true, values, established: Some(432_000), udp_timeout: Some(30) }
    }

    /// As the kernel sets them.
    fn fresh() -> Conntrack {
        Conntrack { values: [0, 0, 300, 300].map(Some), ..usual() }
    }

    /// With one of them changed.
    fn with(place: usize, value: Option<u32>) -> Conntrack {
        let mut conntrack = usual();
        conntrack.values[place] = value;
        conntrack
    }

    #[test]
    fn tcp_is_learned_only_where_conntrack_forgives_what_it_did_not_see() {
        assert_eq!(usual().settings().flags, FastConfig::TCP | FastConfig::UDP);
        for (conntrack, reason) in [
            (with(0, Some(0)), "net.netfilter.nf_conntrack_tcp_be_liberal is not 1"),
            (with(1, None), "this kernel has no net.netfilter.nf_conntrack_tcp_ignore_invalid_rst"),
            (
                with(2, Some(300)),
                "net.netfilter.nf_conntrack_tcp_timeout_unacknowledged is 300, less than the 432000 of \
                 net.netfilter.nf_conntrack_tcp_timeout_established",
            ),
            (
                with(3, Some(431_999)),
                "net.netfilter.nf_conntrack_tcp_timeout_max_retrans is 431999, less than the 432000 of \
                 net.netfilter.nf_conntrack_tcp_timeout_established",
            ),
            (
                Conntrack { established: None, ..usual() },
                "this kernel has no net.netfilter.nf_conntrack_tcp_timeout_unacknowledged",
            ),
        ] {
            assert_eq!(conntrack.settings().flags, FastConfig::UDP);
            assert_eq!(conntrack.tcp_obstacle().map(|unmet| unmet.to_string()).as_deref(), Some(reason));
        }
    }

    #[test]
    fn all_that_is_too_small_is_set_or_nothing() {
        let names = |conntrack: &Conntrack| -> Vec<(u32, u32)> {
            conntrack.changes().iter().map(|change| (change.now, change.needed)).collect()
        };
        assert_eq!(names(&fresh()), [(0, 1), (0, 1), (300, 432_000), (300, 432_000)]);
        assert_eq!(names(&Conntrack { established: Some(200), ..fresh() }), [(0, 1), (0, 1)]);
        let raised = Conntrack { established: Some(500_000), ..usual() };
        assert_eq!(names(&raised), [(432_000, 500_000), (432_000, 500_000)], "they follow");
        let mut old = fresh();
        old.values[1] = None;
        assert_eq!(names(&old), [], "TCP is not learned whatever is set");
        assert_eq!(names(&Conntrack { loaded: false, ..fresh() }), []);
    }

    #[test]
    fn without_conntrack_nothing_has_a_window() {
        assert_eq!(Conntrack::default().settings().flags, FastConfig::TCP | FastConfig::UDP);
        assert_eq!(Conntrack::default().tcp_obstacle(), None);
    }

    #[test]
    fn what_was_seen_is_trusted_for_half_of_the_shortest_timeout_at_most() {
        let interval = |udp_timeout| Conntrack { udp_timeout, ..usual() }.settings().interval;
        assert_eq!(interval(None), tick::ticks(FastConfig::INTERVAL_NS));
        assert_eq!(interval(Some(30)), tick::ticks(FastConfig::INTERVAL_NS));
        assert_eq!(interval(Some(2)), tick::ticks(1_000_000_000));
        assert_eq!(interval(Some(0)), 1);
    }
}
