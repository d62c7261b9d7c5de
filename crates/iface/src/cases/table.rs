//! The cases. Each is a row of docs/reference/external-interface.md.

/// A choice on a host as it is.
pub(super) struct ChoiceCase {
    pub(super) situation: &'static str,
    pub(super) options: &'static str,
    pub(super) host: &'static str,
    /// The interface and the address, or the beginning of the error: `waits: ` where a change of
    /// the host can cure it.
    pub(super) chosen: &'static str,
}

/// A choice that is followed.
pub(super) struct Following {
    pub(super) situation: &'static str,
    pub(super) before: &'static str,
    /// Seconds after the one before, and the host from then on.
    pub(super) steps: &'static [(u64, &'static str)],
    /// The interface and the address in the end.
    pub(super) chosen: &'static str,
    /// Seconds from the last step to that choice, at most; `None` if no other is ever chosen.
    pub(super) within: Option<u64>,
}

const fn by_default(
    situation: &'static str,
    host: &'static str,
    chosen: &'static str,
) -> ChoiceCase {
    ChoiceCase {
        situation,
        options: "",
        host,
        chosen,
    }
}

pub(super) const CHOICES: [ChoiceCase; 37] = [
    by_default(
        "an address by DHCP, and a virtual one of kube-vip or keepalived",
        "eth0 default: 192.168.1.11/24 leased source, 192.168.1.100/32",
        "eth0 192.168.1.11",
    ),
    by_default(
        "the virtual address was there first",
        "eth0 default: 192.168.1.100/32, 192.168.1.11/24 leased source",
        "eth0 192.168.1.11",
    ),
    by_default(
        "a virtual or second address of the same subnet",
        "eth0 default: 192.168.1.11/24 leased source, 192.168.1.100/24 secondary",
        "eth0 192.168.1.11",
    ),
    by_default(
        "an address by DHCP that came after one of the same subnet, and the route names it",
        "eth0 default from=192.168.1.11: 192.168.1.100/24 source, 192.168.1.11/24 leased secondary",
        "eth0 192.168.1.11",
    ),
    by_default(
        "a single address by DHCP, as in some clouds, and a virtual one",
        "eth0 default: 10.128.0.100/32, 10.128.0.2/32 leased",
        "eth0 10.128.0.2",
    ),
    by_default(
        "a single static address with a gateway on the link, and a virtual one",
        "eth0 default: 10.0.0.100/32, 10.0.0.2/32 source",
        "eth0 10.0.0.2",
    ),
    by_default(
        "a single static address, and a private subnet",
        "eth0 default: 203.0.113.7/32 source, 10.1.0.5/24",
        "eth0 203.0.113.7",
    ),
    by_default(
        "a single address and no other",
        "eth0 default: 10.0.0.2/32 source",
        "eth0 10.0.0.2",
    ),
    by_default(
        "the default route names the virtual address (keepalived's virtual_routes)",
        "eth0 default from=192.168.1.100: 192.168.1.11/24 source, 192.168.1.100/32",
        "eth0 192.168.1.11",
    ),
    by_default(
        "the default route names an address of another subnet",
        "eth0 default from=10.1.0.5: 10.0.0.5/24 source, 10.1.0.5/24",
        "eth0 10.1.0.5",
    ),
    by_default(
        "the default route names an address on lo, and the interface has none (BGP unnumbered)",
        "lo: 10.255.0.7/32; eth0 default from=10.255.0.7",
        "eth0 10.255.0.7",
    ),
    by_default(
        "virtual addresses on lo",
        "lo: 10.255.0.7/32, 192.168.1.100/32; eth0 default: 192.168.1.11/24 source",
        "eth0 192.168.1.11",
    ),
    by_default(
        "an address that a host gave itself, and one by DHCP",
        "eth0 default: 169.254.7.7/16, 192.168.1.11/24 leased",
        "eth0 192.168.1.11",
    ),
    by_default(
        "only an address that a host gave itself",
        "eth0 default: 169.254.7.7/16 source",
        "eth0 169.254.7.7",
    ),
    by_default(
        "an address of the pod network on the external interface",
        "eth0 default: 10.244.7.1/24 source, 192.168.1.11/24",
        "eth0 192.168.1.11",
    ),
    by_default(
        "IPv6: a virtual address, which the kernel prefers as the longer match",
        "eth0 default: fd79::100/128 nodad source, fd79::11/64 nodad",
        "eth0 fd79::11",
    ),
    by_default(
        "IPv6: a virtual address of the same prefix, added without duplicate detection",
        "eth0 default: 2001:db8::100/64 nodad source, 2001:db8::11/64 leased",
        "eth0 2001:db8::11",
    ),
    by_default(
        "IPv6: an address by DHCPv6, and a virtual one",
        "eth0 default: 2001:db8::100/128 nodad source, 2001:db8::11/128 leased",
        "eth0 2001:db8::11",
    ),
    by_default(
        "IPv6: two prefixes, of which one is deprecated",
        "eth0 default: 2001:db8:1::11/64 leased deprecated, 2001:db8:2::11/64 leased source",
        "eth0 2001:db8:2::11",
    ),
    by_default(
        "IPv6: a unique local and a global prefix",
        "eth0 default: fd00::11/64 leased, 2001:db8::11/64 leased source",
        "eth0 2001:db8::11",
    ),
    by_default(
        "IPv6: a privacy address, which the kernel prefers on some hosts",
        "eth0 default: 2001:db8::abcd/64 leased temporary source, fd00::11/64 leased, \
         2001:db8::11/64 leased",
        "eth0 2001:db8::11",
    ),
    by_default(
        "IPv6: duplicate detection failed or still runs",
        "eth0 default: 2001:db8::1/64 failed, 2001:db8::2/64 tentative, 2001:db8::3/64 source",
        "eth0 2001:db8::3",
    ),
    by_default(
        "IPv6: only a deprecated address",
        "eth0 default: 2001:db8:1::11/64 leased deprecated source",
        "eth0 2001:db8:1::11",
    ),
    by_default(
        "IPv6: only an address whose duplicate detection failed",
        "eth0 default: fd79::1/64 failed",
        "waits: interface eth0 cannot be used: no usable IPv6 address",
    ),
    by_default(
        "two default routes",
        "eth0 default metric=100: 192.168.1.11/24 source; eth1 default metric=200: 10.0.0.5/24 \
         source",
        "eth0 192.168.1.11",
    ),
    by_default(
        "the first of two default routes is dead",
        "eth0 no-carrier default metric=100: 192.168.1.11/24; eth1 default metric=200: 10.0.0.5/24 \
         source",
        "eth1 10.0.0.5",
    ),
    by_default(
        "the only default route is dead",
        "eth0 no-carrier default: 192.168.1.11/24; eth1: 10.0.0.5/24",
        "eth0 192.168.1.11",
    ),
    by_default(
        "a default route with several next hops, of which the kernel takes the second",
        "eth0 default: 192.168.1.11/24 source; eth1 default kernel: 10.0.0.5/24 source",
        "eth1 10.0.0.5",
    ),
    by_default(
        "the next hop that the kernel takes has no carrier",
        "eth0 default: 192.168.1.11/24 source; eth1 no-carrier default kernel: 10.0.0.5/24",
        "eth0 192.168.1.11",
    ),
    by_default(
        "the next hop that the kernel takes is by a tunnel device",
        "flannel.1 default kernel: 10.244.7.0/32; eth0 default: 192.168.1.11/24 source",
        "eth0 192.168.1.11",
    ),
    by_default(
        "a DHCP client put a better default route on the tunnel device",
        "flannel.1 default: 169.254.7.7/16 source; eth0 default metric=100: 192.168.1.11/24 source",
        "eth0 192.168.1.11",
    ),
    by_default(
        "the only default route is that of the tunnel device",
        "eth0: 192.168.1.11/24; flannel.1 default: 192.168.1.11/24 source",
        "waits: the IPv4 default route leaves by flannel.1, which is a tunnel of flannel and not \
         an external interface",
    ),
    by_default(
        "the only default route is that of a bridge of pods with another name",
        "eth0: 192.168.1.11/24; brpods default: 10.244.7.1/24 source",
        "waits: the IPv4 default route leaves by brpods, which is a bridge of pods, with an \
         address of the pod network",
    ),
    ChoiceCase {
        situation: "a tunnel device by its name",
        options: "--iface=cilium_vxlan",
        host: "eth0: 192.168.1.11/24; cilium_vxlan: 10.0.0.5/24",
        chosen: "error: no interface fits what was asked for:\n  cilium_vxlan: cilium_vxlan is a \
            device of Cilium",
    },
    ChoiceCase {
        situation: "an address that a DHCP client put on the tunnel device as well",
        options: "--iface=192.168.1.11",
        host: "flannel.1: 192.168.1.11/24; eth0: 192.168.1.11/24",
        chosen: "eth0 192.168.1.11",
    },
    ChoiceCase {
        situation: "a pattern that also matches pods' devices and addresses",
        options: r"--iface-regex=^(10\.|cni|veth|flannel|eth)",
        host: "cni0: 10.244.7.1/24; veth0a1b2c3d: 10.9.9.9/16; flannel.1: 10.244.7.0/32; eth0: \
            192.168.1.11/24",
        chosen: "eth0 192.168.1.11",
    },
    ChoiceCase {
        situation: "a pattern that only matches an address of pods",
        options: r"--iface-regex=^10\.",
        host: "cni0: 10.244.7.1/24; eth0: 192.168.1.11/24",
        chosen: "waits: no interface fits what was asked for:\n  --iface-regex=^10\\.: it matches \
            no usable address",
    },
];

const DHCP: &str = "eth0 default: 192.168.1.11/24 leased source";
const DHCP_AND_VIRTUAL: &str = "eth0 default: 192.168.1.11/24 leased source, 192.168.1.100/32";
const ONLY_VIRTUAL: &str = "eth0 default: 192.168.1.100/32";
const TWO: &str = "eth0 default: 192.168.1.11/24 source, 10.1.0.5/24";
const SECOND: &str = "eth0 default: 10.1.0.5/24 source";
const UPLINKS: &str =
    "eth0 default metric=100: 192.168.1.11/24 source; eth1 default metric=200: 10.0.0.5/24 source";
const DEAD_UPLINK: &str = "eth0 no-carrier default metric=100: 192.168.1.11/24 source; eth1 \
    default metric=200: 10.0.0.5/24 source";
const PREFIX: &str = "eth0 default: 2001:db8:1::11/64 leased source";

pub(super) const FOLLOWINGS: [Following; 22] = [
    Following {
        situation: "a virtual address comes and goes",
        before: DHCP,
        steps: &[(9, DHCP_AND_VIRTUAL), (9, DHCP)],
        chosen: "eth0 192.168.1.11",
        within: None,
    },
    Following {
        situation: "the DHCP lease is renewed",
        before: DHCP,
        steps: &[(60, DHCP)],
        chosen: "eth0 192.168.1.11",
        within: None,
    },
    Following {
        situation: "the address is away for 4 s, and a virtual one is there",
        before: DHCP_AND_VIRTUAL,
        steps: &[(9, ONLY_VIRTUAL), (4, DHCP_AND_VIRTUAL)],
        chosen: "eth0 192.168.1.11",
        within: None,
    },
    Following {
        situation: "the address is away for 4 s, and another one is there",
        before: TWO,
        steps: &[(9, SECOND), (4, TWO)],
        chosen: "eth0 192.168.1.11",
        within: None,
    },
    Following {
        situation: "all addresses are away for a moment and return one by one",
        before: TWO,
        steps: &[(9, "eth0"), (2, SECOND), (1, TWO)],
        chosen: "eth0 192.168.1.11",
        within: None,
    },
    Following {
        situation: "the address is gone, and another one was there before",
        before: TWO,
        steps: &[(9, SECOND)],
        chosen: "eth0 10.1.0.5",
        within: Some(5),
    },
    Following {
        situation: "that address returns later",
        before: TWO,
        steps: &[
            (9, SECOND),
            (60, "eth0 default: 10.1.0.5/24 source, 192.168.1.11/24"),
        ],
        chosen: "eth0 192.168.1.11",
        within: Some(0),
    },
    Following {
        situation: "the address is gone, and only a virtual one is left",
        before: DHCP_AND_VIRTUAL,
        steps: &[(9, ONLY_VIRTUAL)],
        chosen: "eth0 192.168.1.100",
        within: Some(5),
    },
    Following {
        situation: "another address comes while only a virtual one is left",
        before: DHCP_AND_VIRTUAL,
        steps: &[
            (9, ONLY_VIRTUAL),
            (
                60,
                "eth0 default: 192.168.1.100/32, 192.168.1.21/24 leased source",
            ),
        ],
        chosen: "eth0 192.168.1.21",
        within: Some(0),
    },
    Following {
        situation: "DHCP gives another address, the former one is taken away first",
        before: DHCP_AND_VIRTUAL,
        steps: &[
            (9, ONLY_VIRTUAL),
            (
                1,
                "eth0 default: 192.168.1.100/32, 192.168.1.21/24 leased source",
            ),
        ],
        chosen: "eth0 192.168.1.21",
        within: Some(0),
    },
    Following {
        situation: "DHCP gives another address, the new one is set first",
        before: DHCP,
        steps: &[
            (
                60,
                "eth0 default: 192.168.1.11/24 leased source, 192.168.1.21/24 leased secondary",
            ),
            (2, "eth0 default: 192.168.1.21/24 leased source"),
        ],
        chosen: "eth0 192.168.1.21",
        within: Some(0),
    },
    Following {
        situation: "another address becomes the kernel's source, and the former one stays",
        before: TWO,
        steps: &[(
            9,
            "eth0 default from=10.1.0.5: 192.168.1.11/24, 10.1.0.5/24 source",
        )],
        chosen: "eth0 192.168.1.11",
        within: None,
    },
    Following {
        situation: "IPv6: the provider changes the prefix, the former one is deprecated",
        before: PREFIX,
        steps: &[(
            60,
            "eth0 default: 2001:db8:1::11/64 leased deprecated, 2001:db8:2::11/64 leased source",
        )],
        chosen: "eth0 2001:db8:2::11",
        within: Some(0),
    },
    Following {
        situation: "IPv6: the only address is deprecated",
        before: PREFIX,
        steps: &[(
            60,
            "eth0 default: 2001:db8:1::11/64 leased deprecated source",
        )],
        chosen: "eth0 2001:db8:1::11",
        within: None,
    },
    Following {
        situation: "IPv6: duplicate detection runs again for 2 s after a flap",
        before: "eth0 default: 2001:db8::11/64 source, fd00::11/64",
        steps: &[
            (
                9,
                "eth0 default: 2001:db8::11/64 tentative, fd00::11/64 source",
            ),
            (2, "eth0 default: 2001:db8::11/64 source, fd00::11/64"),
        ],
        chosen: "eth0 2001:db8::11",
        within: None,
    },
    Following {
        situation: "the interface loses its carrier, and another default route works",
        before: UPLINKS,
        steps: &[(9, DEAD_UPLINK)],
        chosen: "eth1 10.0.0.5",
        within: Some(10),
    },
    Following {
        situation: "its carrier returns after 9 s",
        before: UPLINKS,
        steps: &[(9, DEAD_UPLINK), (9, UPLINKS)],
        chosen: "eth0 192.168.1.11",
        within: None,
    },
    Following {
        situation: "its carrier returns later",
        before: UPLINKS,
        steps: &[(9, DEAD_UPLINK), (60, UPLINKS)],
        chosen: "eth0 192.168.1.11",
        within: Some(10),
    },
    Following {
        situation: "the default route moves to another interface, and the former one keeps its \
            address",
        before: "eth0 default: 192.168.1.11/24 source; eth1",
        steps: &[(9, "eth0: 192.168.1.11/24; eth1 default: 10.0.0.5/24 source")],
        chosen: "eth1 10.0.0.5",
        within: Some(10),
    },
    Following {
        situation: "the default route is away for 9 s",
        before: "eth0 default: 10.0.0.2/32 source, 10.1.0.5/24; eth1: 10.2.0.5/24",
        steps: &[
            (9, "eth0: 10.0.0.2/32, 10.1.0.5/24; eth1: 10.2.0.5/24"),
            (
                9,
                "eth0 default: 10.0.0.2/32 source, 10.1.0.5/24; eth1: 10.2.0.5/24",
            ),
        ],
        chosen: "eth0 10.0.0.2",
        within: None,
    },
    Following {
        situation: "a VPN sets a better default route",
        before: "eth0 default metric=100: 192.168.1.11/24 source",
        steps: &[(
            9,
            "eth0 default metric=100: 192.168.1.11/24 source; tun0 default: 10.8.0.2/24 source",
        )],
        chosen: "eth0 192.168.1.11",
        within: None,
    },
    Following {
        situation: "a DHCP client puts addresses and the only default route on the tunnel device",
        before: "eth0 default: 192.168.1.11/24 source; flannel.1",
        steps: &[(
            9,
            "eth0: 192.168.1.11/24; flannel.1 default: 192.168.1.11/24, 169.254.7.7/16 source",
        )],
        chosen: "eth0 192.168.1.11",
        within: None,
    },
];
