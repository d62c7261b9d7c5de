//! The flows that are learned, and how long an observation of them is trusted: the operator's
//! settings, and those of conntrack. Pure.

use std::fmt;

use flannel_common::abi::{fast::FastConfig, tick};
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

/// Conntrack's timeouts of UDP: before a flow was answered and had some packets, and after.
pub(super) const UDP_TIMEOUTS: [&str; 2] = [
    "net.netfilter.nf_conntrack_udp_timeout",
    "net.netfilter.nf_conntrack_udp_timeout_stream",
];

/// Seconds by which these timeouts are raised. Conntrack counts from the last packet that it sees,
/// and replayed ones follow that for up to an interval and a quarter (2.5 s): without the margin a
/// flow with a keepalive just below the timeout would lose its translation.
pub(super) const UDP_MARGIN: u32 = 3;

/// Sysctls by which a host has conntrack forgive packets of TCP out of window, in all connections.
/// Earlier versions of the agent set them.
pub(super) const LIBERAL: [&str; 2] = [
    "net.netfilter.nf_conntrack_tcp_be_liberal",
    "net.netfilter.nf_conntrack_tcp_ignore_invalid_rst",
];

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
    /// Of [`UDP_TIMEOUTS`], in their order; `None` where this kernel does not have the sysctl.
    pub(super) udp: [Option<UdpTimeout>; UDP_TIMEOUTS.len()],
}

/// A timeout of UDP, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UdpTimeout {
    /// Its value.
    pub(super) now: u32,
    /// The host's own value.
    pub(super) own: u32,
}

impl UdpTimeout {
    /// The value with which no flow is forgotten earlier than with the host's own.
    const fn needed(self) -> u32 {
        self.own.saturating_add(UDP_MARGIN)
    }
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
        matches!(
            self,
            Self::Timeout(Unmet {
                values: Some(_),
                ..
            })
        )
    }
}

impl fmt::Display for TcpObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(unmet) => unmet.fmt(f),
            Self::NoTypes => f.write_str(
                "the kernel does not show its types (/sys/kernel/btf/vmlinux), or has refused \
                 programs that read its \
                 memory (the log has its reason), so the programs cannot see whether conntrack \
                 checks the windows of a \
                 connection",
            ),
            Self::NoNetlink => f.write_str(
                "the kernel has no netlink interface to conntrack (nf_conntrack_netlink), or it is \
                 refused to the agent, \
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
            Some(change) => write!(
                f,
                "{name} is {}, less than the {} of {ESTABLISHED}",
                change.now, change.needed
            ),
        }
    }
}

impl Conntrack {
    /// The requirements that do not hold. None without conntrack: then nothing tracks connections.
    fn unmet(&self) -> impl Iterator<Item = Unmet> {
        REQUIREMENTS
            .iter()
            .zip(self.values)
            .filter_map(|(name, now)| {
                let values =
                    now.zip(self.established)
                        .map(|(now, needed)| Change { name, now, needed });
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

    /// Changes by which TCP would be learned, none where they would not be enough; and those by
    /// which UDP keeps its timeouts.
    pub(super) fn changes(&self) -> Vec<Change> {
        let mut changes: Vec<_> = self
            .unmet()
            .map(|unmet| unmet.values)
            .collect::<Option<_>>()
            .unwrap_or_default();
        changes.extend(self.udp_changes());
        changes
    }

    fn udp_changes(&self) -> impl Iterator<Item = Change> {
        UDP_TIMEOUTS
            .iter()
            .zip(self.udp)
            .filter_map(|(name, timeout)| {
                let (now, needed) = timeout.map(|timeout| (timeout.now, timeout.needed()))?;
                (now < needed).then_some(Change { name, now, needed })
            })
    }

    /// Seconds by which conntrack may forget a silent flow of UDP early, if it may.
    pub(super) fn forgets_udp_early(&self) -> Option<u32> {
        self.udp_changes()
            .map(|change| change.needed - change.now)
            .max()
    }

    /// The settings for the programs, but for the devices' MTUs.
    pub(super) fn settings(&self) -> FastConfig {
        let tcp = if self.tcp_obstacle().is_none() {
            FastConfig::TCP
        } else {
            0
        };
        let liberal = if self.windows == WindowChecks::Off {
            FastConfig::TCP_LIBERAL
        } else {
            0
        };
        let shortest = self
            .udp
            .into_iter()
            .flatten()
            .map(|timeout| timeout.now)
            .min();
        let half = shortest.map_or(u64::MAX, |seconds| u64::from(seconds) * 500_000_000);
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
        Conntrack {
            loaded: true,
            windows,
            values,
            established: Some(432_000),
            udp: udp([33, 123], [30, 120]),
        }
    }

    fn udp(now: [u32; 2], own: [u32; 2]) -> [Option<UdpTimeout>; 2] {
        [0, 1].map(|place| {
            Some(UdpTimeout {
                now: now[place],
                own: own[place],
            })
        })
    }

    /// As the kernel sets them.
    fn fresh() -> Conntrack {
        Conntrack {
            values: [300; 2].map(Some),
            ..usual()
        }
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
            (
                with(1, None),
                "this kernel has no net.netfilter.nf_conntrack_tcp_timeout_max_retrans",
            ),
            (
                with(0, Some(300)),
                "net.netfilter.nf_conntrack_tcp_timeout_unacknowledged is 300, less than the \
                 432000 of \
                 net.netfilter.nf_conntrack_tcp_timeout_established",
            ),
            (
                with(1, Some(431_999)),
                "net.netfilter.nf_conntrack_tcp_timeout_max_retrans is 431999, less than the \
                 432000 of \
                 net.netfilter.nf_conntrack_tcp_timeout_established",
            ),
            (
                Conntrack {
                    established: None,
                    ..usual()
                },
                "this kernel has no net.netfilter.nf_conntrack_tcp_timeout_unacknowledged",
            ),
        ] {
            assert_eq!(conntrack.settings().flags, FastConfig::UDP);
            assert_eq!(
                conntrack
                    .tcp_obstacle()
                    .map(|unmet| unmet.to_string())
                    .as_deref(),
                Some(reason)
            );
        }
    }

    #[test]
    fn all_that_is_too_small_is_set_or_nothing() {
        let names = |conntrack: &Conntrack| -> Vec<(u32, u32)> {
            conntrack
                .changes()
                .iter()
                .map(|change| (change.now, change.needed))
                .collect()
        };
        assert_eq!(names(&fresh()), [(300, 432_000), (300, 432_000)]);
        assert_eq!(
            names(&Conntrack {
                established: Some(200),
                ..fresh()
            }),
            []
        );
        let raised = Conntrack {
            established: Some(500_000),
            ..usual()
        };
        assert_eq!(
            names(&raised),
            [(432_000, 500_000), (432_000, 500_000)],
            "they follow"
        );
        let mut old = fresh();
        old.values[1] = None;
        assert_eq!(names(&old), [], "TCP is not learned whatever is set");
        assert_eq!(
            names(&Conntrack {
                loaded: false,
                ..fresh()
            }),
            []
        );
    }

    #[test]
    fn timeouts_of_udp_are_the_hosts_own_and_a_margin() {
        let changes = |now, own| -> Vec<(&str, u32, u32)> {
            let conntrack = Conntrack {
                udp: udp(now, own),
                ..usual()
            };
            conntrack
                .changes()
                .iter()
                .map(|change| (change.name, change.now, change.needed))
                .collect()
        };
        assert_eq!(changes([33, 123], [30, 120]), []);
        assert_eq!(
            changes([30, 120], [30, 120]),
            [(UDP_TIMEOUTS[0], 30, 33), (UDP_TIMEOUTS[1], 120, 123)]
        );
        assert_eq!(
            changes([8, 123], [8, 120]),
            [(UDP_TIMEOUTS[0], 8, 11)],
            "the operator has set it"
        );
        let early = |udp| Conntrack { udp, ..usual() }.forgets_udp_early();
        assert_eq!(
            [
                early(udp([30, 123], [30, 120])),
                early(udp([33, 123], [30, 120])),
                early([None; 2])
            ],
            [Some(3), None, None]
        );
    }

    #[test]
    fn tcp_is_learned_where_the_checks_of_windows_end_for_single_connections_or_all() {
        let flags = |windows| Conntrack { windows, ..usual() }.settings().flags;
        let learned = FastConfig::TCP | FastConfig::UDP;
        assert_eq!(flags(WindowChecks::EndedSingly), learned);
        assert_eq!(flags(WindowChecks::Off), learned | FastConfig::TCP_LIBERAL);
        assert_eq!(flags(WindowChecks::Hidden), FastConfig::UDP);
        assert_eq!(flags(WindowChecks::Fixed), FastConfig::UDP);
        let unloaded = Conntrack {
            loaded: false,
            windows: WindowChecks::Fixed,
            ..usual()
        };
        assert_eq!(unloaded.settings().flags, learned, "nothing is checked");
        let reason = Conntrack {
            windows: WindowChecks::Fixed,
            ..usual()
        }
        .tcp_obstacle()
        .expect("an obstacle");
        assert!(
            reason.to_string().contains("nf_conntrack_netlink") && !reason.can_be_set(),
            "{reason}"
        );
    }

    #[test]
    fn without_conntrack_nothing_has_a_window() {
        assert_eq!(
            Conntrack::default().settings().flags,
            FastConfig::TCP | FastConfig::UDP
        );
        assert_eq!(Conntrack::default().tcp_obstacle(), None);
    }

    #[test]
    fn what_was_seen_is_trusted_for_half_of_the_shortest_timeout_at_most() {
        let interval = |now: Option<u32>| {
            let udp = [now.map(|now| UdpTimeout { now, own: now }), None];
            Conntrack { udp, ..usual() }.settings().interval
        };
        assert_eq!(interval(None), tick::ticks(FastConfig::INTERVAL_NS));
        assert_eq!(interval(Some(30)), tick::ticks(FastConfig::INTERVAL_NS));
        assert_eq!(interval(Some(2)), tick::ticks(1_000_000_000));
        assert_eq!(interval(Some(0)), 1);
    }
}
