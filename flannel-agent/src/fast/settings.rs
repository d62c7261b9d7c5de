//! Which flows are learned, and for how long what was seen is trusted: decided from what conntrack is set to. Pure.

use flannel_common::{fast::FastConfig, tick};

/// A switch of conntrack in this network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Switch {
    /// 1.
    On,
    /// 0.
    Off,
    /// This kernel does not have it.
    #[default]
    Missing,
}

/// How conntrack is set in this network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Conntrack {
    /// It is in the kernel.
    pub(super) loaded: bool,
    /// `nf_conntrack_tcp_be_liberal`.
    pub(super) be_liberal: Switch,
    /// `nf_conntrack_tcp_ignore_invalid_rst`.
    pub(super) ignore_invalid_rst: Switch,
    /// The shorter one of `nf_conntrack_udp_timeout` and `nf_conntrack_udp_timeout_stream`, in seconds.
    pub(super) udp_timeout: Option<u32>,
}

/// Where the kernel shows [`Conntrack::be_liberal`], below `/proc/sys`.
pub(super) const BE_LIBERAL: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";
/// Where it shows [`Conntrack::ignore_invalid_rst`].
pub(super) const IGNORE_INVALID_RST: &str = "net/netfilter/nf_conntrack_tcp_ignore_invalid_rst";

impl Conntrack {
    /// Why TCP is not learned, if it is not.
    ///
    /// Conntrack does not see the packets that are replayed. Unless it is liberal it calls the next one it does see out of
    /// window, and a reset after more than 2 GiB in any case.
    pub(super) fn tcp_reason(&self) -> Option<String> {
        if !self.loaded {
            return None;
        }
        let switches = [(BE_LIBERAL, self.be_liberal), (IGNORE_INVALID_RST, self.ignore_invalid_rst)];
        let (name, switch) = switches.into_iter().find(|(_, switch)| *switch != Switch::On)?;
        let name = name.replace('/', ".");
        Some(match switch {
            Switch::Missing => format!("this kernel has no {name}"),
            _ => format!("{name} is not 1"),
        })
    }

    /// The settings for the programs, but for the devices' MTUs.
    pub(super) fn settings(&self) -> FastConfig {
        let tcp = if self.tcp_reason().is_none() { FastConfig::TCP } else { 0 };
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
        Conntrack { loaded: true, be_liberal: Switch::On, ignore_invalid_rst: Switch::On, udp_timeout: Some(30) }
    }

    #[test]
    fn tcp_is_learned_only_where_conntrack_forgives_what_it_did_not_see() {
        assert_eq!(usual().settings().flags, FastConfig::TCP | FastConfig::UDP);
        for (conntrack, reason) in [
            (Conntrack { be_liberal: Switch::Off, ..usual() }, "net.netfilter.nf_conntrack_tcp_be_liberal is not 1"),
            (
                Conntrack { ignore_invalid_rst: Switch::Missing, ..usual() },
                "this kernel has no net.netfilter.nf_conntrack_tcp_ignore_invalid_rst",
            ),
        ] {
            assert_eq!(conntrack.settings().flags, FastConfig::UDP);
            assert_eq!(conntrack.tcp_reason().as_deref(), Some(reason));
        }
    }

    #[test]
    fn without_conntrack_nobody_has_a_window() {
        assert_eq!(Conntrack::default().settings().flags, FastConfig::TCP | FastConfig::UDP);
        assert_eq!(Conntrack::default().tcp_reason(), None);
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
