//! The capabilities that the options need, and their purpose. Pure but for two looks at the host.

use std::{fs, net::SocketAddr};

use flannel_backends::ipsec;
use flannel_firewall_tools::tool;
use flannel_options::RunOptions;
use rustix::thread::CapabilitySet;

use super::capability_names::names;

/// The first unprivileged port, unless the host sets another one.
const FIRST_FREE_PORT: u16 = 1024;

/// A capability, and what cannot be done without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CapabilityNeed {
    pub(super) capability: CapabilitySet,
    without: &'static str,
}

/// Whatever the options are.
pub(super) const ALWAYS: [CapabilityNeed; 3] = [
    CapabilityNeed {
        capability: CapabilitySet::NET_ADMIN,
        without: "the network cannot be changed",
    },
    CapabilityNeed {
        capability: CapabilitySet::BPF,
        without: "programs and maps cannot be loaded",
    },
    CapabilityNeed {
        capability: CapabilitySet::PERFMON,
        without: "programs that read kernel memory cannot be loaded",
    },
];
/// With a legacy variant of iptables on this host, used or not: its rules are read too.
const LEGACY: CapabilityNeed = CapabilityNeed {
    capability: CapabilitySet::NET_RAW,
    without: "legacy iptables cannot read or write its rules",
};
/// With a port to listen on that is a privileged one.
const PORT: CapabilityNeed = CapabilityNeed {
    capability: CapabilitySet::NET_BIND_SERVICE,
    without: "a --healthz-port or --metrics-port below 1024 cannot be listened on",
};
/// With a file to read that root may not.
pub(super) const READ: CapabilityNeed = CapabilityNeed {
    capability: CapabilitySet::DAC_READ_SEARCH,
    without: "a file of the options cannot be read",
};
/// With a directory to write to that root may not.
pub(super) const WRITE: CapabilityNeed = CapabilityNeed {
    capability: CapabilitySet::DAC_OVERRIDE,
    without: "a directory of the options cannot be written to",
};

impl CapabilityNeed {
    /// Returns a message on the missing capability and what cannot be done without it.
    pub(super) fn missing_message(&self) -> String {
        format!(
            "{} is missing, without which {}",
            names(self.capability).join(", "),
            self.without
        )
    }
}

/// Returns the capabilities that the options need, apart from those for their files.
pub(super) fn of(options: &RunOptions) -> Vec<CapabilityNeed> {
    let ports: Vec<_> = [options.listeners.healthz, options.listeners.metrics]
        .iter()
        .flatten()
        .map(SocketAddr::port)
        .collect();
    needs(tool::may_be_legacy(), &ports, first_free_port())
}

/// Returns the capabilities that are kept where they are held, and not missed otherwise: where
/// strongSwan is installed the backend may be ipsec, whose charon listens on UDP port 500.
pub(super) fn if_held() -> CapabilitySet {
    if ipsec::program().is_ok() {
        CapabilitySet::NET_BIND_SERVICE
    } else {
        CapabilitySet::empty()
    }
}

fn needs(legacy: bool, ports: &[u16], first_free: u16) -> Vec<CapabilityNeed> {
    let mut needs = ALWAYS.to_vec();
    needs.extend(legacy.then_some(LEGACY));
    needs.extend(ports.iter().any(|port| *port < first_free).then_some(PORT));
    needs
}

fn first_free_port() -> u16 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(FIRST_FREE_PORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_ask_for_what_they_use() {
        let all = |needs: &[CapabilityNeed]| {
            needs
                .iter()
                .fold(CapabilitySet::empty(), |set, need| set | need.capability)
        };
        let least = CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::PERFMON;
        assert_eq!(all(&needs(false, &[], 1024)), least);
        assert_eq!(all(&needs(true, &[], 1024)), least | CapabilitySet::NET_RAW);
        for ports in [&[80][..], &[8081, 80], &[80, 8082]] {
            assert_eq!(
                all(&needs(false, ports, 1024)),
                least | CapabilitySet::NET_BIND_SERVICE,
                "{ports:?}"
            );
        }
        for (port, first) in [(80, 80), (8081, 1024), (80, 0)] {
            assert_eq!(all(&needs(false, &[port], first)), least, "{port}");
        }
    }
}
