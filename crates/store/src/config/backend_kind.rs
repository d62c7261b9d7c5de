//! The backends by name, and the properties of each that do not depend on its settings.
//!
//! The kernel state that a backend wants is in `backend` of the agent. The control plane asks this
//! table and never which backend it is, so a new backend is one more row.

/// A backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// VXLAN tunnels.
    Vxlan,
    /// Routes to nodes on the same link.
    HostGw,
    /// WireGuard tunnels.
    Wireguard,
    /// IPsec tunnels.
    Ipsec,
    /// UDP datagrams of a process.
    Udp,
    /// Tunnels of IPv4 in IPv4.
    Ipip,
    /// Commands of the operator.
    Extension,
    /// Routes of Amazon's VPC.
    AwsVpc,
    /// Routes of a network of Google's Compute Engine.
    Gce,
    /// Routes of Tencent's VPC.
    TencentVpc,
    /// Routes of Alibaba's VPC.
    AliVpc,
    /// A subnet for this node and nothing else.
    Alloc,
}

/// The properties of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendProperties {
    /// `Backend.Type` of the network configuration, in lower case.
    pub type_name: &'static str,
    /// `BackendType` of leases and Node annotations. Flannel publishes none for udp, alloc and the
    /// routes of clouds.
    pub lease_name: &'static str,
    /// True if nodes send packets to each other, so that a node follows the leases of its peers.
    pub has_peers: bool,
    /// True if packets of IPv6 are not carried.
    pub ipv4_only: bool,
    /// True if packets get headers that lower the MTU of pods.
    pub has_tunnel: bool,
    /// The end of a tunnel that a lease describes.
    pub end: EndKind,
    /// The addresses that a Node's annotations carry, as flannel writes them.
    pub annotated: AnnotatedAddresses,
}

/// The end of a tunnel that a lease describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndKind {
    /// The backend has no tunnel.
    None,
    /// A VTEP: the Ethernet address of the node's tunnel device.
    Vtep,
    /// The public key and the UDP port of the node's WireGuard device.
    Wireguard,
    /// A text for commands, if there is one.
    Text,
}

/// The addresses in a Node's annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotatedAddresses {
    /// Those of the families that are on.
    OfFamilies,
    /// IPv4 always (0.0.0.0 where the family is off), IPv6 if it is on.
    Ipv4Always,
    /// Always IPv4, and never IPv6.
    Ipv4Only,
}

impl BackendKind {
    /// Every backend.
    pub const ALL: [Self; 12] = [
        Self::Vxlan,
        Self::HostGw,
        Self::Wireguard,
        Self::Ipsec,
        Self::Ipip,
        Self::Udp,
        Self::Extension,
        Self::AwsVpc,
        Self::Gce,
        Self::TencentVpc,
        Self::AliVpc,
        Self::Alloc,
    ];

    /// Returns its properties.
    pub const fn properties(self) -> BackendProperties {
        match self {
            Self::Vxlan => BackendProperties {
                type_name: "vxlan",
                lease_name: "vxlan",
                has_peers: true,
                ipv4_only: false,
                has_tunnel: true,
                end: EndKind::Vtep,
                annotated: AnnotatedAddresses::OfFamilies,
            },
            Self::HostGw => BackendProperties {
                type_name: "host-gw",
                lease_name: "host-gw",
                has_peers: true,
                ipv4_only: false,
                has_tunnel: false,
                end: EndKind::None,
                annotated: AnnotatedAddresses::Ipv4Always,
            },
            Self::Wireguard => BackendProperties {
                type_name: "wireguard",
                lease_name: "wireguard",
                has_peers: true,
                ipv4_only: false,
                has_tunnel: true,
                end: EndKind::Wireguard,
                annotated: AnnotatedAddresses::Ipv4Always,
            },
            Self::Ipsec => Self::of_ipv4("ipsec", "ipsec"),
            Self::Udp => Self::of_ipv4("udp", ""),
            Self::Ipip => Self::of_ipv4("ipip", "ipip"),
            Self::Extension => BackendProperties {
                type_name: "extension",
                lease_name: "extension",
                has_peers: true,
                ipv4_only: false,
                has_tunnel: false,
                end: EndKind::Text,
                annotated: AnnotatedAddresses::Ipv4Always,
            },
            Self::AwsVpc => Self::cloud("aws-vpc"),
            Self::Gce => Self::cloud("gce"),
            Self::TencentVpc => Self::cloud("tencent-vpc"),
            Self::AliVpc => Self::cloud("ali-vpc"),
            Self::Alloc => BackendProperties {
                type_name: "alloc",
                lease_name: "",
                has_peers: false,
                ipv4_only: false,
                has_tunnel: false,
                end: EndKind::None,
                annotated: AnnotatedAddresses::Ipv4Only,
            },
        }
    }

    /// The properties of a backend whose packets a cloud routes.
    const fn cloud(type_name: &'static str) -> BackendProperties {
        BackendProperties {
            has_tunnel: false,
            ..Self::of_ipv4(type_name, "")
        }
    }

    const fn of_ipv4(type_name: &'static str, lease_name: &'static str) -> BackendProperties {
        BackendProperties {
            type_name,
            lease_name,
            has_peers: true,
            ipv4_only: true,
            has_tunnel: true,
            end: EndKind::None,
            annotated: AnnotatedAddresses::Ipv4Only,
        }
    }

    /// Returns the backend of a network configuration that names it so, in any case.
    pub fn of_type(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.properties().type_name.eq_ignore_ascii_case(name))
    }

    /// Returns the backend of a lease or Node that names it so. Those without a name there publish
    /// the same, and the first of them stands for all.
    pub fn of_lease(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.properties().lease_name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backend_is_found_by_its_names() {
        for kind in BackendKind::ALL {
            let BackendProperties {
                type_name,
                lease_name,
                end,
                annotated,
                ..
            } = kind.properties();
            assert_eq!(BackendKind::of_type(&type_name.to_uppercase()), Some(kind));
            let found = BackendKind::of_lease(lease_name).expect("a backend");
            assert!(found == kind || lease_name.is_empty(), "{found:?}");
            assert_eq!(
                (found.properties().end, found.properties().annotated),
                (end, annotated)
            );
        }
        assert_eq!(
            (BackendKind::of_type(""), BackendKind::of_lease("udp")),
            (None, None)
        );
    }
}
