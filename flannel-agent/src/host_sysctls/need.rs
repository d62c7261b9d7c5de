//! The sysctls without which the kernel carries no packet of pods, as data. Pure.

use flannel_host::{family::Family, sysctl_record};

/// A sysctl and the value it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) name: String,
    pub(super) value: u32,
    /// The effect of another value on pods; absent where pods do without the sysctl.
    pub(super) effect: Option<String>,
    pub(super) scope: Scope,
}

/// The part of the host that a sysctl is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All devices of the host.
    Host(Family),
    /// Our own tunnel device.
    OwnDevice,
    /// A device of the host, which is never changed.
    OtherDevice,
}

/// The devices of one family whose sysctls matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// The family.
    pub family: Family,
    /// The name of the tunnel device, where there is one.
    pub tunnel: Option<String>,
    /// The name of the external interface, where packets of pods arrive by it without a tunnel.
    pub external: Option<String>,
}

/// The sysctl `key` of a device.
fn of_device(family: Family, device: &str, key: &str) -> String {
    let protocol = match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    };
    sysctl_record::name_of(&format!("net/{protocol}/conf/{device}/{key}"))
}

/// The sysctl by which the kernel forwards packets of a family.
pub(super) fn forwarding(family: Family) -> Need {
    Need {
        name: sysctl_record::name_of(flannel_host::sysctl::forwarding(family)),
        value: 1,
        effect: Some(format!("this node forwards no {family} packets, so its pods reach no other node")),
        scope: Scope::Host(family),
    }
}

/// The sysctl without which a tunnel device carries no packets of a family.
pub(super) fn of_tunnel(family: Family, device: &str) -> Need {
    match family {
        Family::V4 => forwards(device, Scope::OwnDevice),
        Family::V6 => Need {
            name: of_device(Family::V6, device, "disable_ipv6"),
            value: 0,
            effect: Some(format!("{device} carries no IPv6 packets of pods")),
            scope: Scope::OwnDevice,
        },
    }
}

/// The sysctl by which the kernel forwards IPv4 packets that arrive by a device.
fn forwards(device: &str, scope: Scope) -> Need {
    Need {
        name: of_device(Family::V4, device, "forwarding"),
        value: 1,
        effect: Some(format!("IPv4 packets for pods that arrive by {device} are dropped")),
        scope,
    }
}

/// All sysctls that the devices of a family need. For IPv6 the kernel forwards by the setting of
/// all devices (`ip6_forward()` in net/ipv6/ip6_output.c, 5.4 to 6.18), for IPv4 by that of the
/// device by which a packet arrives (`ip_mkroute_input()` and `__mkroute_input()` in
/// net/ipv4/route.c).
pub(super) fn of(devices: &Devices) -> Vec<Need> {
    let Devices { family, tunnel, external } = devices;
    let mut needs = vec![forwarding(*family)];
    needs.extend(tunnel.iter().map(|device| of_tunnel(*family, device)));
    if *family == Family::V4 {
        needs.extend(external.iter().map(|device| forwards(device, Scope::OtherDevice)));
    }
    // No router is behind a tunnel, so an advertisement there is a forged one.
    needs.extend(tunnel.iter().map(|device| Need {
        name: of_device(Family::V6, device, "accept_ra"),
        value: 0,
        effect: None,
        scope: Scope::OwnDevice,
    }));
    needs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(family: Family, tunnel: Option<&str>, external: Option<&str>) -> Vec<String> {
        let device = |name: Option<&str>| name.map(str::to_owned);
        let needs = of(&Devices { family, tunnel: device(tunnel), external: device(external) });
        needs.into_iter().map(|need| format!("{}={}", need.name, need.value)).collect()
    }

    #[test]
    fn each_family_has_its_own() {
        assert_eq!(
            names(Family::V4, Some("flannel.1"), None),
            ["net.ipv4.ip_forward=1", "net.ipv4.conf.flannel/1.forwarding=1", "net.ipv6.conf.flannel/1.accept_ra=0"]
        );
        assert_eq!(
            names(Family::V6, Some("flannel-wg"), None),
            [
                "net.ipv6.conf.all.forwarding=1",
                "net.ipv6.conf.flannel-wg.disable_ipv6=0",
                "net.ipv6.conf.flannel-wg.accept_ra=0"
            ]
        );
        assert_eq!(names(Family::V4, None, Some("eth0")), ["net.ipv4.ip_forward=1", "net.ipv4.conf.eth0.forwarding=1"]);
    }
}
