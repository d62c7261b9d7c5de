//! Readings of the host for mode `fast`.

use std::{fs, path::Path, sync::OnceLock};

use flannel_host::{
    kernel_types,
    sysctl_record::{self, ChangedSysctl},
};
use flannel_netfilter::ConntrackTable;

use super::settings::{
    Conntrack, ESTABLISHED, LIBERAL, REQUIREMENTS, UDP_TIMEOUTS, UdpTimeout, WindowChecks,
};

/// Conntrack's helpers and their default ports. A helper rewrites payload, which is never the same
/// twice. Which helpers are built into the kernel does not show, so all ports count whether their
/// helper is there or not.
const HELPERS: [(&str, &[u16]); 10] = [
    ("ftp", &[21]),
    ("tftp", &[69]),
    ("snmp", &[161]),
    ("netbios_ns", &[137]),
    ("h323", &[1719, 1720]),
    ("pptp", &[1723]),
    ("sip", &[5060]),
    ("sane", &[6566]),
    ("irc", &[6667]),
    ("amanda", &[10080]),
];

/// Reads the settings of conntrack; one that cannot be read counts as missing. `changed`: the
/// sysctls that the agent has set.
pub(super) fn conntrack(changed: &[ChangedSysctl]) -> Conntrack {
    let read = |name: &str| sysctl_record::read(name).ok().flatten();
    let udp = |name: &str| {
        let now = read(name)?;
        let ours = changed
            .iter()
            .find(|changed| changed.name == name && changed.is_ours(now));
        Some(UdpTimeout {
            now,
            own: ours.map_or(now, |changed| changed.before),
        })
    };
    let loaded = Path::new("/proc/sys/net/netfilter/nf_conntrack_count").exists();
    Conntrack {
        loaded,
        windows: if LIBERAL.iter().all(|name| read(name) == Some(1)) {
            WindowChecks::Off
        } else {
            windows(loaded)
        },
        values: REQUIREMENTS.map(read),
        established: read(ESTABLISHED),
        udp: UDP_TIMEOUTS.map(udp),
    }
}

/// Returns what can be done about conntrack's checks of windows. Without conntrack there are none,
/// and asking for its table would load it.
fn windows(loaded: bool) -> WindowChecks {
    static END_SINGLY: OnceLock<()> = OnceLock::new();
    if kernel_types::layout().tcp_states == 0 {
        return WindowChecks::Hidden;
    }
    if !loaded || END_SINGLY.get().is_some() {
        return WindowChecks::EndedSingly;
    }
    match ConntrackTable::open().and_then(|mut table| table.check()) {
        Ok(()) => {
            END_SINGLY.get_or_init(|| ());
            WindowChecks::EndedSingly
        }
        Err(_) => WindowChecks::Fixed,
    }
}

/// Returns the ports on which no flow is learned, because a helper may be on them. None where the
/// programs see from conntrack's entry whether a connection has a helper: a masquerade takes these
/// ports too (`--random-fully`), and a Service may be on them.
pub(super) fn helper_ports() -> Vec<u16> {
    if kernel_types::layout().extensions == 0 {
        usual_helper_ports()
    } else {
        Vec::new()
    }
}

/// Returns the ports helpers may be on: the default ones, and those set as parameters of the
/// modules. Sorted, without duplicates.
fn usual_helper_ports() -> Vec<u16> {
    let parameter = |helper: &str| {
        fs::read_to_string(format!(
            "/sys/module/nf_conntrack_{helper}/parameters/ports"
        ))
    };
    let usual = HELPERS.iter().flat_map(|(_, ports)| ports.iter().copied());
    let configured = HELPERS
        .iter()
        .filter_map(|(helper, _)| parameter(helper).ok());
    let configured: Vec<u16> = configured.flat_map(|text| ports(&text)).collect();
    let mut all: Vec<u16> = usual.chain(configured).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn ports(text: &str) -> Vec<u16> {
    text.trim()
        .split(',')
        .filter_map(|port| port.parse().ok())
        .filter(|port| *port != 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_take_ports_in_a_list() {
        assert_eq!(ports("2121,2122,0,0\n"), [2121, 2122]);
        assert!(ports("").is_empty());
    }

    #[test]
    fn the_usual_ports_of_helpers_are_among_them() {
        let ports = usual_helper_ports();
        assert!(
            [21, 69, 1720, 1723, 5060, 6667]
                .iter()
                .all(|port| ports.contains(port)),
            "{ports:?}"
        );
    }
}
