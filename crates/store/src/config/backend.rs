//! The `Backend` object: which backend, and the settings of vxlan.
//!
//! Flannel reads an absent `Backend` as `udp`, although its documentation says vxlan. An absent one
//! is therefore refused: the operator says which of the two it is.

use flannel_common::abi::mode::Mode;

use super::{
    access_keys::{self, ACCESS_KEYS, AccessKeys},
    aws_vpc::{self, AWS_VPC_KEYS, AwsVpcConfig},
    backend_kind::{BackendKind, BackendProperties},
    error::{ConfigMistake, Result},
    extension::{self, EXTENSION_KEYS, ExtensionConfig},
    findings::Findings,
    gojson::Fields,
    ipip::{self, IPIP_KEYS, IpipConfig},
    ipsec::{self, IPSEC_KEYS, IpsecConfig},
    mtu::mtu_of,
    tx_checksum_offload::{self, TxChecksumOffload},
    udp::{self, UDP_KEYS, UdpConfig},
    warning::{ConfigWarning, unknown_keys},
    wireguard::{self, WIREGUARD_KEYS, WireguardConfig},
};

/// The UDP port of the Linux vxlan device, which flannel keeps (IANA's 4789 is not it).
pub const DEFAULT_PORT: u16 = 8472;
/// The VXLAN network identifier of a cluster that sets none.
pub const DEFAULT_VNI: u32 = 1;

const MAX_VNI: u32 = 0x00ff_ffff;
/// Below, the tunnel device could not carry IPv4's minimum of 68 bytes after 50 of overhead.
pub(super) const MIN_MTU: u16 = 118;
/// Below, the kernel takes IPv6 off the tunnel device: its minimum is 1280 bytes, and the overhead
/// is 70.
pub(super) const MIN_MTU_V6: u16 = 1350;
/// The types we have, for people.
const BUILT: &str = "\"vxlan\", \"host-gw\", \"wireguard\", \"ipsec\", \"ipip\", \"udp\", \
    \"extension\", \
                     \"aws-vpc\", \"gce\", \"tencent-vpc\", \"ali-vpc\" or \"alloc\"";
pub(super) const WINDOWS_KEYS: &[&str] = &["Name", "MacPrefix"];
/// Keys that mean the same whatever the backend.
pub(super) const COMMON_KEYS: &[&str] = &["Type", "Datapath", "Name", "MacPrefix"];
pub(super) const VXLAN_KEYS: &[&str] = &[
    "VNI",
    "Port",
    "MTU",
    "GBP",
    "Learning",
    "DirectRouting",
    "TxChecksumOffload",
];

/// The remedies for backends by other names: each type, and what to write instead.
const OTHER_BACKENDS: &[(&str, &str)] = &[("wireguard-native", WIREGUARD_OF_K3S)];
const WIREGUARD_OF_K3S: &str =
    "it is k3s's name of flannel's wireguard: write \"Type\": \"wireguard\"";

/// The way packets travel between the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendConfig {
    /// VXLAN tunnels, with direct routes between nodes of one link if asked for.
    Vxlan(VxlanConfig),
    /// Plain routes to nodes on the same link.
    HostGw,
    /// WireGuard tunnels.
    Wireguard(WireguardConfig),
    /// IPsec tunnels.
    Ipsec(IpsecConfig),
    /// UDP datagrams of a process.
    Udp(UdpConfig),
    /// Tunnels of IPv4 in IPv4.
    Ipip(IpipConfig),
    /// Commands of the operator.
    Extension(ExtensionConfig),
    /// Routes of Amazon's VPC.
    AwsVpc(AwsVpcConfig),
    /// Routes of a network of Google's Compute Engine.
    Gce,
    /// Routes of Tencent's VPC, with the keys of an account if there are some.
    TencentVpc(Option<AccessKeys>),
    /// Routes of Alibaba's VPC, with the keys of an account if there are some.
    AliVpc(Option<AccessKeys>),
    /// A subnet for this node and nothing else.
    Alloc,
}

impl BackendConfig {
    /// Returns which backend it is.
    pub const fn kind(&self) -> BackendKind {
        match self {
            Self::Vxlan(_) => BackendKind::Vxlan,
            Self::HostGw => BackendKind::HostGw,
            Self::Wireguard(_) => BackendKind::Wireguard,
            Self::Ipsec(_) => BackendKind::Ipsec,
            Self::Udp(_) => BackendKind::Udp,
            Self::Ipip(_) => BackendKind::Ipip,
            Self::Extension(_) => BackendKind::Extension,
            Self::AwsVpc(_) => BackendKind::AwsVpc,
            Self::Gce => BackendKind::Gce,
            Self::TencentVpc(_) => BackendKind::TencentVpc,
            Self::AliVpc(_) => BackendKind::AliVpc,
            Self::Alloc => BackendKind::Alloc,
        }
    }

    /// Returns the properties that do not depend on its settings.
    pub const fn properties(&self) -> BackendProperties {
        self.kind().properties()
    }

    /// Returns the VNI and the UDP port of all nodes, where the configuration sets both.
    pub const fn vni_and_port(&self) -> Option<(u32, u16)> {
        match self {
            Self::Vxlan(config) => Some((config.vni, config.port)),
            _ => None,
        }
    }

    /// Returns the setting of inner checksums, where the backend has one.
    pub const fn tx_checksum_offload(&self) -> Option<TxChecksumOffload> {
        match self {
            Self::Vxlan(config) => Some(config.tx_checksum_offload),
            _ => None,
        }
    }
}

/// The settings of the vxlan backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VxlanConfig {
    /// The network identifier, 24 bits.
    pub vni: u32,
    /// The UDP destination port.
    pub port: u16,
    /// The budget for the outer packet in bytes; `None` takes it from the external interface.
    pub mtu: Option<u16>,
    /// Group-based policy in the VXLAN header.
    pub gbp: bool,
    /// Let the device learn peers from packets.
    pub learning: bool,
    /// Plain routes instead of tunnels to peers on the same link.
    pub direct_routing: bool,
    /// If inner checksums may be left to the network card.
    pub tx_checksum_offload: TxChecksumOffload,
}

/// Reads `Backend` from the top-level object; the second value is `Backend.Datapath`. `None` only
/// after a mistake.
pub(super) fn parse(
    config: &Fields,
    ipv6: bool,
    findings: &mut Findings,
) -> Option<(BackendConfig, Option<Mode>)> {
    let fields = findings.keep(parse_object(config))?;
    let kind = findings.keep(parse_type(&fields))?;
    let (backend, keys) = parse_kind(kind, &fields, ipv6, findings);
    let BackendProperties {
        type_name,
        has_peers,
        ipv4_only,
        ..
    } = kind.properties();
    if ipv6 && ipv4_only {
        findings.mistake(ConfigMistake::Ipv4Only { backend: type_name });
    }
    findings.warn(unknown_keys(
        "Backend",
        &fields,
        &[COMMON_KEYS, keys].concat(),
    ));
    let windows = WINDOWS_KEYS.iter().filter(|key| fields.raw(key).is_some());
    findings.warn(windows.map(|key| ConfigWarning::WindowsOnly { key }));
    let datapath = if has_peers {
        findings.keep(parse_datapath(&fields))?
    } else {
        let set = fields.raw("Datapath").is_some();
        findings.warn(set.then_some(ConfigWarning::NoDatapath));
        None
    };
    Some((backend?, datapath))
}

/// Reads the settings of a kind; the second value is their keys.
fn parse_kind(
    kind: BackendKind,
    fields: &Fields,
    ipv6: bool,
    findings: &mut Findings,
) -> (Option<BackendConfig>, &'static [&'static str]) {
    match kind {
        BackendKind::Vxlan => (
            parse_vxlan(fields, ipv6, findings).map(BackendConfig::Vxlan),
            VXLAN_KEYS,
        ),
        BackendKind::HostGw => (Some(BackendConfig::HostGw), &[][..]),
        BackendKind::Wireguard => (
            wireguard::parse(fields, ipv6, findings).map(BackendConfig::Wireguard),
            WIREGUARD_KEYS,
        ),
        BackendKind::Ipsec => (
            ipsec::parse(fields, findings).map(BackendConfig::Ipsec),
            IPSEC_KEYS,
        ),
        BackendKind::Udp => (
            udp::parse(fields, findings).map(BackendConfig::Udp),
            UDP_KEYS,
        ),
        BackendKind::Ipip => (
            ipip::parse(fields, findings).map(BackendConfig::Ipip),
            IPIP_KEYS,
        ),
        BackendKind::Extension => (
            extension::parse(fields, findings).map(BackendConfig::Extension),
            EXTENSION_KEYS,
        ),
        BackendKind::AwsVpc => (
            aws_vpc::parse(fields, findings).map(BackendConfig::AwsVpc),
            AWS_VPC_KEYS,
        ),
        BackendKind::Gce => (Some(BackendConfig::Gce), &[][..]),
        BackendKind::TencentVpc => (
            findings
                .keep(access_keys::parse(fields))
                .map(BackendConfig::TencentVpc),
            ACCESS_KEYS,
        ),
        BackendKind::AliVpc => (
            findings
                .keep(access_keys::parse(fields))
                .map(BackendConfig::AliVpc),
            ACCESS_KEYS,
        ),
        BackendKind::Alloc => (Some(BackendConfig::Alloc), &[][..]),
    }
}

fn parse_object(config: &Fields) -> Result<Fields> {
    let Some(raw) = config.raw("Backend") else {
        return Err(ConfigMistake::NoBackend);
    };
    if raw.get() == "null" {
        return Err(ConfigMistake::NoBackendType);
    }
    Fields::parse(raw.get()).map_err(|_mismatch| config.bad_value("Backend", "an object"))
}

fn parse_type(fields: &Fields) -> Result<BackendKind> {
    let name = fields
        .expect::<String>("Type", "the name of a backend")?
        .unwrap_or_default();
    if name.is_empty() {
        return Err(ConfigMistake::NoBackendType);
    }
    if let Some(kind) = BackendKind::of_type(&name) {
        return Ok(kind);
    }
    let lower = name.to_lowercase();
    match OTHER_BACKENDS.iter().find(|(other, _)| *other == lower) {
        Some((_, instead)) => Err(ConfigMistake::OtherName {
            key: "Backend.Type",
            value: lower,
            instead,
        }),
        None => Err(ConfigMistake::UnknownBackend { name, built: BUILT }),
    }
}

fn parse_vxlan(fields: &Fields, ipv6: bool, findings: &mut Findings) -> Option<VxlanConfig> {
    let vni = findings.keep(parse_vni(fields));
    let port = findings.keep(fields.expect::<u16>("Port", "a UDP port, 0..=65535"));
    let mtu = findings.keep(parse_mtu(fields, ipv6));
    let tx_checksum_offload = findings.keep(tx_checksum_offload::parse(fields));
    let [gbp, learning, direct_routing] =
        ["GBP", "Learning", "DirectRouting"].map(|key| findings.keep(fields.flag(key, false)));
    Some(VxlanConfig {
        vni: vni?,
        port: port?.filter(|port| *port != 0).unwrap_or(DEFAULT_PORT),
        mtu: mtu?,
        gbp: gbp?,
        learning: learning?,
        direct_routing: direct_routing?,
        tx_checksum_offload: tx_checksum_offload?,
    })
}

fn parse_vni(fields: &Fields) -> Result<u32> {
    let expected = "a VNI of 24 bits, 0..=16777215";
    let vni = fields
        .expect::<u32>("VNI", expected)?
        .unwrap_or(DEFAULT_VNI);
    if vni > MAX_VNI {
        Err(fields.bad_value("VNI", expected))
    } else {
        Ok(vni)
    }
}

fn parse_mtu(fields: &Fields, ipv6: bool) -> Result<Option<u16>> {
    if ipv6 {
        mtu_of(
            fields,
            MIN_MTU_V6,
            "a number of bytes, 1350..=65535 with IPv6, or 0 for the external interface's MTU",
        )
    } else {
        mtu_of(
            fields,
            MIN_MTU,
            "a number of bytes, 118..=65535, or 0 for the external interface's MTU",
        )
    }
}

fn parse_datapath(fields: &Fields) -> Result<Option<Mode>> {
    let expected = "kernel, encap, fast or auto";
    match fields.expect::<String>("Datapath", expected)?.as_deref() {
        None | Some("" | "auto") => Ok(None),
        Some(name) => name
            .parse()
            .map(Some)
            .map_err(|_unknown| fields.bad_value("Datapath", expected)),
    }
}
