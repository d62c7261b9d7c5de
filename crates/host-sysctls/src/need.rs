//! The sysctls without which the kernel carries no packet of pods, as data. Pure.

use flannel_host::{family::Family, sysctl_record};

/// `rp_filter`: packets are dropped if the way back to their source is by another device.
const STRICT: u32 = 1;
/// `rp_filter`: packets are dropped if no way leads back.
const LOOSE: u32 = 2;

/// A sysctl and the value it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) name: String,
    pub(super) value: u32,
    pub(super) rule: Rule,
    /// The effect of another value.
    pub(super) effect: String,
    /// True if pods are cut off with another value.
    pub(super) is_vital: bool,
    pub(super) scope: Scope,
}

/// The values that a need accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Only the one it names.
    Exact,
    /// Each but the strict `rp_filter`. The kernel goes by the larger value of the device's own and
    /// that of `all` (`IN_DEV_RPFILTER` in
    /// [inetdevice.h](https://elixir.bootlin.com/linux/v6.1/source/include/linux/inetdevice.h),
    /// 5.4 to 6.18), so 2 on the device is loose whatever `all` is.
    NotStrict,
}

impl Rule {
    /// The sysctl whose value counts where it is larger.
    pub(super) const fn for_all(self) -> Option<&'static str> {
        match self {
            Self::Exact => None,
            Self::NotStrict => Some("net.ipv4.conf.all.rp_filter"),
        }
    }
}

impl Need {
    /// Returns true if the value that the kernel goes by is accepted.
    pub(super) fn accepts(&self, effective: u32) -> bool {
        match self.rule {
            Rule::Exact => effective == self.value,
            Rule::NotStrict => effective != STRICT,
        }
    }
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
    /// The name of the external interface, by which packets for pods arrive: from hosts outside the
    /// cluster, and without a tunnel from other nodes.
    pub external: String,
    /// Another device by which packets to some peer leave, where none leave by the external
    /// interface.
    pub other_way: Option<String>,
    /// True if packets to peers leave by the external interface encrypted by IPsec policies.
    pub is_encrypted: bool,
    /// The bridges of pods.
    pub bridges: Vec<String>,
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
        rule: Rule::Exact,
        effect: format!("this node forwards no {family} packets, so its pods reach no other node"),
        is_vital: true,
        scope: Scope::Host(family),
    }
}

/// The sysctl without which a tunnel device carries no packets of a family.
pub(super) fn of_tunnel(family: Family, device: &str) -> Need {
    match family {
        Family::V4 => forwards(device, Scope::OwnDevice),
        Family::V6 => has_ipv6(
            device,
            format!("{device} carries no IPv6 packets of pods"),
            Scope::OwnDevice,
        ),
    }
}

/// The sysctl without which a device has neither IPv6 addresses nor IPv6 packets.
fn has_ipv6(device: &str, effect: String, scope: Scope) -> Need {
    let name = of_device(Family::V6, device, "disable_ipv6");
    Need {
        name,
        value: 0,
        rule: Rule::Exact,
        effect,
        is_vital: true,
        scope,
    }
}

/// The sysctl by which the kernel forwards IPv4 packets that arrive by a device.
fn forwards(device: &str, scope: Scope) -> Need {
    Need {
        name: of_device(Family::V4, device, "forwarding"),
        value: 1,
        rule: Rule::Exact,
        effect: format!("IPv4 packets of pods that arrive by {device} are dropped"),
        is_vital: true,
        scope,
    }
}

/// The sysctl by which the kernel drops IPv4 packets that arrive by a device, and whose source it
/// reaches by another one.
fn takes_other_ways(device: &str, effect: String, is_vital: bool, scope: Scope) -> Need {
    let name = of_device(Family::V4, device, "rp_filter");
    Need {
        name,
        value: LOOSE,
        rule: Rule::NotStrict,
        effect,
        is_vital,
        scope,
    }
}

/// The sysctl by which packets leave by a device past all IPsec policies.
fn encrypts(device: &str) -> Need {
    Need {
        name: of_device(Family::V4, device, "disable_xfrm"),
        value: 0,
        rule: Rule::Exact,
        effect: format!(
            "IPv4 packets of pods leave {device} unencrypted, and other nodes drop them"
        ),
        is_vital: true,
        scope: Scope::OtherDevice,
    }
}

/// All sysctls that the devices of a family need. For IPv6 the kernel forwards by the setting of
/// all devices (`ip6_forward()` in
/// [net/ipv6/ip6_output.c](https://elixir.bootlin.com/linux/v6.1/source/net/ipv6/ip6_output.c), 5.4
/// to 6.18), for IPv4 by that of the device by which a packet arrives (`ip_mkroute_input()` and
/// `__mkroute_input()` in [net/ipv4/route.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/route.c)).
pub(super) fn of(devices: &Devices) -> Vec<Need> {
    let Devices {
        family,
        tunnel,
        external,
        other_way,
        is_encrypted,
        bridges,
    } = devices;
    let mut needs = vec![forwarding(*family)];
    needs.extend(tunnel.iter().map(|device| of_tunnel(*family, device)));
    if *family == Family::V4 {
        needs.extend(
            bridges
                .iter()
                .chain([external])
                .map(|device| forwards(device, Scope::OtherDevice)),
        );
        needs.extend(tunnel.iter().map(|device| {
            let effect =
                format!("packets that arrive by {device} from addresses of nodes are dropped");
            takes_other_ways(device, effect, false, Scope::OwnDevice)
        }));
        needs.extend(other_way.iter().map(|device| {
            let effect = format!(
                "packets to a peer leave by {device}, so those that come from it by {external}, \
                 with all \
                 packets of pods in them, are dropped"
            );
            takes_other_ways(external, effect, true, Scope::OtherDevice)
        }));
        needs.extend(is_encrypted.then(|| encrypts(external)));
    } else {
        needs.extend(bridges.iter().map(|device| {
            let effect = format!(
                "{device} carries no IPv6 packets of pods, and has lost its IPv6 addresses, which \
                 have to be added again"
            );
            has_ipv6(device, effect, Scope::OtherDevice)
        }));
    }
    needs.extend(tunnel.iter().map(|device| {
        Need {
            name: of_device(Family::V6, device, "accept_ra"),
            value: 0,
            rule: Rule::Exact,
            effect:
                "it takes router advertisements, which are forged: no router is behind a tunnel"
                    .to_owned(),
            is_vital: false,
            scope: Scope::OwnDevice,
        }
    }));
    needs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(family: Family) -> Devices {
        let external = "eth0".to_owned();
        Devices {
            family,
            tunnel: None,
            external,
            other_way: None,
            is_encrypted: false,
            bridges: Vec::new(),
        }
    }

    fn names(devices: &Devices) -> Vec<String> {
        of(devices)
            .into_iter()
            .map(|need| format!("{}={}", need.name, need.value))
            .collect()
    }

    #[test]
    fn each_family_has_its_own() {
        let bridges = vec!["cni0".to_owned()];
        let tunnel = Some("flannel.1".to_owned());
        assert_eq!(
            names(&Devices {
                tunnel,
                bridges: bridges.clone(),
                ..devices(Family::V4)
            }),
            [
                "net.ipv4.ip_forward=1",
                "net.ipv4.conf.flannel/1.forwarding=1",
                "net.ipv4.conf.cni0.forwarding=1",
                "net.ipv4.conf.eth0.forwarding=1",
                "net.ipv4.conf.flannel/1.rp_filter=2",
                "net.ipv6.conf.flannel/1.accept_ra=0"
            ]
        );
        assert_eq!(
            names(&Devices {
                tunnel: Some("flannel-wg".to_owned()),
                bridges,
                ..devices(Family::V6)
            }),
            [
                "net.ipv6.conf.all.forwarding=1",
                "net.ipv6.conf.flannel-wg.disable_ipv6=0",
                "net.ipv6.conf.cni0.disable_ipv6=0",
                "net.ipv6.conf.flannel-wg.accept_ra=0"
            ]
        );
        assert_eq!(
            names(&Devices {
                is_encrypted: true,
                ..devices(Family::V4)
            }),
            [
                "net.ipv4.ip_forward=1",
                "net.ipv4.conf.eth0.forwarding=1",
                "net.ipv4.conf.eth0.disable_xfrm=0"
            ]
        );
    }

    #[test]
    fn a_strict_external_interface_matters_only_if_packets_leave_by_another() {
        let is_judged = |other_way: Option<&str>| {
            let devices = Devices {
                other_way: other_way.map(str::to_owned),
                ..devices(Family::V4)
            };
            of(&devices)
                .into_iter()
                .find(|need| need.rule == Rule::NotStrict)
        };
        assert_eq!(is_judged(None), None);
        let need = is_judged(Some("eth1")).expect("a need");
        assert_eq!(
            (&*need.name, need.scope),
            ("net.ipv4.conf.eth0.rp_filter", Scope::OtherDevice)
        );
        assert_eq!(
            [0, 1, 2].map(|value| need.accepts(value)),
            [true, false, true]
        );
    }
}
