//! The network configuration of the cluster: the JSON under `<prefix>/config` or in `net-conf.json`.
//!
//! Owns parsing, defaults and validation, with the rules flannel applies in etcd mode, and those of Kubernetes
//! mode, which are fewer. Pure: text in,
//! [`NetworkConfig`] or one [`ConfigError`] out. A value that exists has passed every check here, so nobody
//! checks again. Where the text comes from, and when to ask again, is the subnet manager's affair.

mod backend;
mod error;
mod family;
pub(crate) mod gojson;
mod prefix;

#[cfg(test)]
mod tests;

use std::fmt;

use flannel_common::mode::Mode;
use ipnet::{Ipv4Net, Ipv6Net};

pub use self::{
    backend::{BackendConfig, DEFAULT_PORT, DEFAULT_VNI, VxlanConfig},
    error::ConfigError,
    family::FamilyConfig,
    prefix::Prefix,
};
use self::{error::Result, gojson::Fields};

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
    /// The IPv6 pod network, when IPv6 is enabled. Not built yet: always `None`.
    pub ipv6: Option<FamilyConfig<Ipv6Net>>,
    /// How packets travel between the nodes.
    pub backend: BackendConfig,
    /// `Backend.Datapath`, a key of ours that flannel ignores: the mode for nodes that choose none.
    pub datapath: Option<Mode>,
    /// What is odd about the text without being wrong.
    pub warnings: Vec<ConfigWarning>,
}

impl NetworkConfig {
    /// Parses and validates the JSON text. The first mistake found is returned.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_with(text, FamilyConfig::parse)
    }

    /// The same where somebody else cuts the network: the `Subnet*` keys are not looked at, and any network will do.
    pub fn parse_assigned(text: &str) -> Result<Self> {
        Self::parse_with(text, FamilyConfig::parse_assigned)
    }

    fn parse_with(text: &str, family: fn(&Fields) -> Result<FamilyConfig<Ipv4Net>>) -> Result<Self> {
        let fields = Fields::parse(text).map_err(ConfigError::Json)?;
        refuse_unbuilt(&fields)?;
        let mut warnings = unknown_keys("", &fields, KEYS);
        let ipv4 = Some(family(&fields)?);
        let (backend, datapath) = backend::parse(&fields, &mut warnings)?;
        Ok(Self { ipv4, ipv6: None, backend, datapath, warnings })
    }
}

fn refuse_unbuilt(fields: &Fields) -> Result<()> {
    let refuse = |key, value: bool, instead| Err(ConfigError::NotBuilt { key, value: value.to_string(), instead });
    if !fields.flag("EnableIPv4", true)? {
        return refuse("EnableIPv4", false, "an IPv6-only network cannot be served; leave EnableIPv4 out or true");
    }
    if fields.flag("EnableIPv6", false)? {
        return refuse("EnableIPv6", true, "leave EnableIPv6 out or false");
    }
    if fields.flag("EnableNFTables", false)? {
        return refuse("EnableNFTables", true, "leave EnableNFTables out or false");
    }
    Ok(())
}

fn unknown_keys(parent: &'static str, fields: &Fields, known: &[&str]) -> Vec<ConfigWarning> {
    fields.unknown(known).map(|key| ConfigWarning::UnknownKey { parent, key: key.to_owned() }).collect()
}

/// Something in the configuration that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigWarning {
    /// A key neither flannel nor we know. Probably misspelt.
    UnknownKey {
        /// The object it stands in: empty for the top level, or `Backend`.
        parent: &'static str,
        /// The key as written.
        key: String,
    },
    /// A key that flannel reads on Windows nodes alone.
    WindowsOnly {
        /// The key.
        key: &'static str,
    },
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { parent: "", key } => {
                write!(f, "the network configuration has the unknown key {key:?}; it is ignored")
            }
            Self::UnknownKey { parent, key } => {
                write!(f, "{parent} in the network configuration has the unknown key {key:?}; it is ignored")
            }
            Self::WindowsOnly { key } => write!(f, "Backend.{key} applies to Windows nodes only; it is ignored"),
        }
    }
}
