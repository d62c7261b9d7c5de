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

/// The timeout of an idle connection.
pub(super) const ESTABLISHED: &str = "net.netfilter.nf_conntrack_tcp_timeout_established";

/// Timeouts of conntrack that must be no shorter than [`ESTABLISHED`], or TCP is not learned.
/// Conntrack does not see the packets that are replayed, and only a sysctl changes these timeouts.
pub(super) const REQUIREMENTS: [&str; 2] = [
    // A packet out of window passes without an update of the tracker. So "data not acknowledged"
    // stays as it was when replay began, and the connection would be forgotten after this timeout
    // instead of the one of established connections.
    "net.netfilter.nf_conntrack_tcp_timeout_unacknowledged",
    // Likewise a retransmission or a closed window that was seen last.
    "net.netfilter.nf_conntrack_tcp_timeout_max_retrans",
];

/// Sysctls by which a host has conntrack forgive packets of TCP out of window, in all connections.
/// Earlier versions of the agent set them.
pub(super) const LIBERAL: [&str; 2] =
    ["net.netfilter.nf_conntrack_tcp_be_liberal", "net.netfilter.nf_conntrack_tcp_ignore_invalid_rst"];

/// The reason for which conntrack does not call the packets invalid that it sees between replayed
/// ones, or the lack of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WindowChecks {
    /// The agent ends the checks of single connections.
    #[default]
    EndedSingly,
    /// The host has none: [`LIBERAL`].
    Off,
    /// The programs cannot see what conntrack checks.
    Hidden,
    /// The agent cannot end them.
    Fixed,
}

/// The settings of conntrack in this network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Conntrack {
    /// It is in the kernel.
    pub(super) loaded: bool,
    /// Its checks of windows.
    pub(super) windows: WindowChecks,
    /// Of [`REQUIREMENTS`], in their order; `None` where this kernel does not have the sysctl.
    pub(super) values: [Option<u32>; REQUIREMENTS.len()],
    /// [`ESTABLISHED`], in seconds.
    pub(super) established: Option<u32>,
    /// The shorter one of `nf_conntrack_udp_timeout` and `nf_conntrack_udp_timeout_stream`, in
    /// seconds.
    pub(super) udp_timeout: Option<u32>,
}

/// The reason for which TCP is not learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpObstacle {
    /// A timeout is too short.
    Timeout(Unmet),
    /// The kernel does not show its types.
    NoTypes,
    /// The kernel has no netlink interface to conntrack, or the agent may not use it.
    NoNetlink,
}

impl TcpObstacle {
    /// Returns true if the agent can remove it, by a sysctl.
    pub const fn can_be_set(&self) -> bool {
        matches!(self, Self::Timeout(Unmet { values: Some(_), .. }))
    }
}

impl fmt::Display for TcpObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(unmet) => unmet.fmt(f),
            Self::NoTypes => f.write_str(
                "the kernel does not show its types (/sys/kernel/btf/vmlinux), or has refused programs that read its \
                 memory (the log has its reason), so the programs cannot see whether conntrack checks the windows of a \
                 connection",
            ),
            Self::NoNetlink => f.write_str(
                "the kernel has no netlink interface to conntrack (nf_conntrack_netlink), or it is refused to the agent, \
                 so conntrack checks the windows of every connection",
            ),
        }
    }
}

/// A timeout that is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmet {
    name: &'static str,
    /// Its value and the one it needs; `None` where the kernel does not have it.
    values: Option<Change>,
}

/// A value that is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) name: &'static str,
    pub(super) now: u32,
    pub(super) needed: u32,
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match self.values {
            None => write!(f, "this kernel has no {name}"),
            Some(change) => write!(f, "{name} is {}, less than the {} of {ESTABLISHED}", change.now, change.needed),
        }
    }
}

impl Conntrack {
    /// The requirements that do not hold. None without conntrack: then nothing tracks connections.
    fn unmet(&self) -> impl Iterator<Item = Unmet> {
        REQUIREMENTS.iter().zip(self.values).filter_map(|(name, now)| {
            let values = now.zip(self.established).map(|(now, needed)| Change { name, now, needed });
            let holds = values.is_some_and(|Change { now, needed, .. }| now >= needed);
            (self.loaded && !holds).then_some(Unmet { name, values })
        })
    }

    /// The reason for which TCP is not learned.
    pub(super) fn tcp_obstacle(&self) -> Option<TcpObstacle> {
        match self.windows {
            WindowChecks::Hidden if self.loaded => Some(TcpObstacle::NoTypes),
            WindowChecks::Fixed if self.loaded => Some(TcpObstacle::NoNetlink),
            _ => self.unmet().next().map(TcpObstacle::Timeout),
        }
    }

    /// Changes by which TCP would be learned; none where they would not be enough.
    pub(super) fn changes(&self) -> Vec<Change> {
        self.unmet().map(|unmet| unmet.values).collect::<Option<_>>().unwrap_or_default()
    }

    /// The settings for the programs, but for the devices' MTUs.
    pub(super) fn settings(&self) -> FastConfig {
        let tcp = if self.tcp_obstacle().is_none() { FastConfig::TCP } else { 0 };
        let liberal = if self.windows == WindowChecks::Off { FastConfig::TCP_LIBERAL } else { 0 };
        let half = self.udp_timeout.map_or(u64::MAX, |seconds| u64::from(seconds) * 500_000_000);
        FastConfig {
            flags: FastConfig::UDP | tcp | liberal,
            interval: tick::ticks(half.min(FastConfig::INTERVAL_NS)),
            ..FastConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> Conntrack {
        let (windows, values) = (WindowChecks::EndedSingly, [432_000; 2].map(Some));
        Conntrack { loaded: true, windows, values, established: Some(432_000), udp_timeout: Some(30) }
    }

    /// As the kernel sets them.
    fn fresh() -> Conntrack {
        Conntrack { values: [300; 2].map(Some), ..usual() }
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
            (with(1, None), "this kernel has no net.netfilter.nf_conntrack_tcp_timeout_max_retrans"),
            (
                with(0, Some(300)),
                "net.netfilter.nf_conntrack_tcp_timeout_unacknowledged is 300, less than the 432000 of \
                 net.netfilter.nf_conntrack_tcp_timeout_established",
            ),
            (
                with(1, Some(431_999)),
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
        assert_eq!(names(&fresh()), [(300, 432_000), (300, 432_000)]);
        assert_eq!(names(&Conntrack { established: Some(200), ..fresh() }), []);
        let raised = Conntrack { established: Some(500_000), ..usual() };
        assert_eq!(names(&raised), [(432_000, 500_000), (432_000, 500_000)], "they follow");
        let mut old = fresh();
        old.values[1] = None;
        assert_eq!(names(&old), [], "TCP is not learned whatever is set");
        assert_eq!(names(&Conntrack { loaded: false, ..fresh() }), []);
    }

    #[test]
    fn tcp_is_learned_where_the_checks_of_windows_end_for_single_connections_or_all() {
        let flags = |windows| Conntrack { windows, ..usual() }.settings().flags;
        let learned = FastConfig::TCP | FastConfig::UDP;
        assert_eq!(flags(WindowChecks::EndedSingly), learned);
        assert_eq!(flags(WindowChecks::Off), learned | FastConfig::TCP_LIBERAL);
        assert_eq!(flags(WindowChecks::Hidden), FastConfig::UDP);
        assert_eq!(flags(WindowChecks::Fixed), FastConfig::UDP);
        let unloaded = Conntrack { loaded: false, windows: WindowChecks::Fixed, ..usual() };
        assert_eq!(unloaded.settings().flags, learned, "nothing is checked");
        let reason = Conntrack { windows: WindowChecks::Fixed, ..usual() }.tcp_obstacle().expect("an obstacle");
        assert!(reason.to_string().contains("nf_conntrack_netlink") && !reason.can_be_set(), "{reason}");
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
