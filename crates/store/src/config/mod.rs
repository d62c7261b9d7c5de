//! The network configuration of the cluster: the JSON under `<prefix>/config` or in
//! `net-conf.json`.
//!
//! Owns parsing, defaults and validation, with the rules flannel applies in etcd mode, and those of
//! Kubernetes mode, which are fewer. Pure: text in, [`NetworkConfig`] or one [`ConfigError`] with
//! every mistake out. A value that exists has passed every check here, so no caller checks it
//! again. The subnet manager decides where the text comes from, and when to read it again.

mod access_keys;
mod aws_vpc;
mod backend;
mod backend_kind;
mod error;
mod extension;
mod family;
mod findings;
pub(crate) mod gojson;
mod ipip;
mod ipsec;
mod mtu;
mod node_mtu;
mod prefix;
mod tx_checksum_offload;
mod udp;
mod warning;
mod wireguard;

#[cfg(test)]
mod tests;

use flannel_common::abi::mode::Mode;
use flannel_host::family::Family;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

pub use self::{
    access_keys::AccessKeys,
    aws_vpc::AwsVpcConfig,
    backend::{BackendConfig, DEFAULT_PORT, DEFAULT_VNI, VxlanConfig},
    backend_kind::{AnnotatedAddresses, BackendKind, BackendProperties, EndKind},
    error::{ConfigError, ConfigMistake},
    extension::{CommandForm, CommandLine, ExtensionConfig},
    family::FamilyConfig,
    ipip::IpipConfig,
    ipsec::IpsecConfig,
    node_mtu::BadNodeMtu,
    prefix::Prefix,
    tx_checksum_offload::TxChecksumOffload,
    udp::UdpConfig,
    warning::ConfigWarning,
    wireguard::{WireguardConfig, WireguardMode},
};
use self::{
    family::{Cutting, Limits},
    findings::Findings,
    gojson::Fields,
    warning::unknown_keys,
};

/// Every key flannel knows at the top level.
const KEYS: &[&str] = &[
    "EnableIPv4",
    "EnableIPv6",
    "EnableNFTables",
    "Network",
    "IPv6Network",
    "SubnetMin",
    "SubnetMax",
    "IPv6SubnetMin",
    "IPv6SubnetMax",
    "SubnetLen",
    "IPv6SubnetLen",
    "Backend",
];

/// A validated network configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkConfig {
    /// The IPv4 pod network, when IPv4 is enabled.
    pub ipv4: Option<FamilyConfig<Ipv4Net>>,
    /// The IPv6 pod network, when IPv6 is enabled. One of the two is there.
    pub ipv6: Option<FamilyConfig<Ipv6Net>>,
    /// True to keep traffic rules by nftables, false to keep them by iptables; absent if the
    /// configuration does not have the key.
    pub nftables: Option<bool>,
    /// The way packets travel between the nodes.
    pub backend: BackendConfig,
    /// `Backend.Datapath`, a key that flannel ignores: the mode of nodes without their own choice.
    pub datapath: Option<Mode>,
    /// Settings in the text that are valid and have no effect.
    pub warnings: Vec<ConfigWarning>,
}

impl NetworkConfig {
    /// Parses and validates the JSON text. Every mistake is returned, not only the first.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::read(text, Cutting::Ours)
    }

    /// Parses and validates the JSON text where an external allocator cuts the network.
    pub fn parse_assigned(text: &str) -> Result<Self, ConfigError> {
        Self::read(text, Cutting::Assigned)
    }

    /// The pod networks of the enabled families.
    pub fn networks(&self) -> impl Iterator<Item = IpNet> {
        let v4 = self.ipv4.map(|family| family.network.into());
        v4.into_iter()
            .chain(self.ipv6.map(|family| family.network.into()))
    }

    /// The enabled families.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        let v4 = self.ipv4.map(|_| Family::V4);
        v4.into_iter().chain(self.ipv6.map(|_| Family::V6))
    }

    fn read(text: &str, cutting: Cutting) -> Result<Self, ConfigError> {
        let fields = Fields::parse(text)
            .map_err(|error| ConfigError::new(vec![ConfigMistake::Json(error)]))?;
        let mut findings = Findings::default();
        findings.warn(unknown_keys("", &fields, KEYS));
        let v4 = findings.keep(fields.flag(Ipv4Net::SWITCH, true));
        let v6 = findings.keep(fields.flag(Ipv6Net::SWITCH, false));
        if v4 == Some(false) && v6 == Some(false) {
            findings.mistake(ConfigMistake::NoFamily);
        }
        let ipv4 = family(v4, &fields, cutting, &mut findings);
        let ipv6 = family(v6, &fields, cutting, &mut findings);
        let is_set = fields.raw("EnableNFTables").is_some();
        let nftables = findings
            .keep(fields.flag("EnableNFTables", false))
            .filter(|_| is_set);
        let backend = backend::parse(&fields, v6 == Some(true), &mut findings);
        let Findings { mistakes, warnings } = findings;
        match backend {
            Some((backend, datapath)) if mistakes.is_empty() => Ok(Self {
                ipv4,
                ipv6,
                nftables,
                backend,
                datapath,
                warnings,
            }),
            _ => Err(ConfigError::new(mistakes)),
        }
    }
}

/// Reads one family. Returns `None` if it is off, if its switch cannot be read, or after a mistake.
fn family<P: Limits>(
    on: Option<bool>,
    fields: &Fields,
    cutting: Cutting,
    findings: &mut Findings,
) -> Option<FamilyConfig<P>> {
    if on? {
        return FamilyConfig::read(fields, cutting, findings);
    }
    let idle = P::keys()
        .into_iter()
        .filter(|key| fields.raw(key).is_some());
    findings.warn(idle.map(|key| ConfigWarning::FamilyOff {
        key,
        switch: P::SWITCH,
    }));
    None
}
