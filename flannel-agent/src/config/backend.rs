//! The `Backend` object: which backend, and the settings of vxlan.
//!
//! Flannel reads an absent `Backend` as `udp`, although its documentation says vxlan; we keep that reading,
//! and refuse it by name like every backend that is not built.

use flannel_common::mode::Mode;

use super::{
    ConfigWarning,
    error::{ConfigError, Result},
    gojson::Fields,
    unknown_keys,
};

/// The UDP port of the Linux vxlan device, which flannel keeps (IANA's 4789 is not it).
pub const DEFAULT_PORT: u16 = 8472;
/// The VXLAN network identifier of a cluster that sets none.
pub const DEFAULT_VNI: u32 = 1;

const MAX_VNI: u32 = 0x00ff_ffff;
/// Below, the tunnel device could not carry IPv4's minimum of 68 bytes after 50 of overhead.
const MIN_MTU: u16 = 118;
const OTHER_BACKENDS: &[&str] = &["host-gw", "udp", "wireguard", "ipip", "ipsec", "alloc", "extension", "tencent-vpc"];
const WINDOWS_KEYS: &[&str] = &["Name", "MacPrefix"];
const KEYS: &[&str] =
    &["Type", "VNI", "Port", "MTU", "GBP", "Learning", "DirectRouting", "Datapath", "Name", "MacPrefix"];

/// How packets travel between the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendConfig {
    /// VXLAN tunnels, with direct routes between nodes of one link if asked for.
    Vxlan(VxlanConfig),
    /// Plain routes to nodes on the same link.
    HostGw,
    /// A subnet for this node and nothing else.
    Alloc,
}

impl BackendConfig {
    /// The name nodes publish as `BackendType`.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Vxlan(_) => "vxlan",
            Self::HostGw => "host-gw",
            // Flannel publishes no name for it.
            Self::Alloc => "",
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
}

/// Reads `Backend` from the top-level object; the second value is `Backend.Datapath`.
pub(super) fn parse(config: &Fields, warnings: &mut Vec<ConfigWarning>) -> Result<(BackendConfig, Option<Mode>)> {
    let Some(raw) = config.raw("Backend") else {
        let instead = "flannel reads an absent Backend as udp: write \"Backend\": {\"Type\": \"vxlan\"}";
        return Err(ConfigError::NotBuilt { key: "Backend", value: "udp".to_owned(), instead });
    };
    if raw.get() == "null" {
        return Err(ConfigError::NoBackendType);
    }
    let fields = Fields::parse(raw.get()).map_err(|_mismatch| config.bad_value("Backend", "an object"))?;
    check_type(fields.expect::<String>("Type", "the name of a backend")?.as_deref())?;
    warnings.extend(unknown_keys("Backend", &fields, KEYS));
    let windows = WINDOWS_KEYS.iter().filter(|key| fields.raw(key).is_some());
    warnings.extend(windows.map(|key| ConfigWarning::WindowsOnly { key }));
    Ok((BackendConfig::Vxlan(parse_vxlan(&fields)?), parse_datapath(&fields)?))
}

fn check_type(name: Option<&str>) -> Result<()> {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Err(ConfigError::NoBackendType) };
    match name.to_lowercase() {
        vxlan if vxlan == "vxlan" => Ok(()),
        other if OTHER_BACKENDS.contains(&other.as_str()) => {
            Err(ConfigError::NotBuilt { key: "Backend.Type", value: other, instead: "write \"Type\": \"vxlan\"" })
        }
        _ => Err(ConfigError::UnknownBackend { name: name.to_owned(), others: OTHER_BACKENDS.join(", ") }),
    }
}

fn parse_vxlan(fields: &Fields) -> Result<VxlanConfig> {
    let vni_range = "a VNI of 24 bits, 0..=16777215";
    let vni = fields.expect::<u32>("VNI", vni_range)?.unwrap_or(DEFAULT_VNI);
    if vni > MAX_VNI {
        return Err(fields.bad_value("VNI", vni_range));
    }
    let mtu_range = "a number of bytes, 118..=65535, or 0 for the external interface's MTU";
    let mtu = fields.expect::<u16>("MTU", mtu_range)?.filter(|mtu| *mtu != 0);
    if mtu.is_some_and(|mtu| mtu < MIN_MTU) {
        return Err(fields.bad_value("MTU", mtu_range));
    }
    let port = fields.expect::<u16>("Port", "a UDP port, 0..=65535")?.filter(|port| *port != 0);
    Ok(VxlanConfig {
        vni,
        port: port.unwrap_or(DEFAULT_PORT),
        mtu,
        gbp: fields.flag("GBP", false)?,
        learning: fields.flag("Learning", false)?,
        direct_routing: fields.flag("DirectRouting", false)?,
    })
}

fn parse_datapath(fields: &Fields) -> Result<Option<Mode>> {
    let expected = "kernel, encap or auto";
    match fields.expect::<String>("Datapath", expected)?.as_deref() {
        None | Some("" | "auto") => Ok(None),
        Some("fast") => Err(ConfigError::NotBuilt {
            key: "Backend.Datapath",
            value: "fast".to_owned(),
            instead: "write \"encap\", or leave the key out",
        }),
        Some(name) => name.parse().map(Some).map_err(|_unknown| fields.bad_value("Datapath", expected)),
    }
}
