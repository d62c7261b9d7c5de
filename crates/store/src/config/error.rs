//! Errors of a network configuration.

use std::{fmt, net::IpAddr};

use flannel_host::excerpt::{excerpt, message_excerpt};
use ipnet::IpNet;

/// Shorthand of this module.
pub(super) type Result<T> = std::result::Result<T, ConfigMistake>;

/// One mistake in a network configuration. Each message names the key, the value and the way out.
#[derive(Debug, thiserror::Error)]
pub enum ConfigMistake {
    /// Not a JSON object.
    #[error("the network configuration is not a JSON object: {}", message_excerpt(.0))]
    Json(serde_json::Error),
    /// A value of the wrong type, or out of its range.
    #[error("{key} in the network configuration is {value}, expected {expected}")]
    BadValue {
        /// The key.
        key: &'static str,
        /// The JSON text of the value, cut.
        value: String,
        /// The expected value.
        expected: &'static str,
    },
    /// A secret of the wrong form. Its value is not shown.
    #[error("{key} in the network configuration cannot be read, expected {expected}")]
    BadSecret {
        /// The key.
        key: &'static str,
        /// The expected value.
        expected: &'static str,
    },
    /// A secret that is absent or too short. Its value is not shown.
    #[error(
        "the network configuration needs a {key} of at least {least} characters for the backend \
         {backend}, and has {length}: \
         `openssl rand -hex {}` prints one of {least}",
        least / 2
    )]
    ShortSecret {
        /// The backend.
        backend: &'static str,
        /// The key.
        key: &'static str,
        /// Characters needed.
        least: usize,
        /// Characters there are.
        length: usize,
    },
    /// The pod network is absent or empty.
    #[error(
        "the network configuration has no {key}; set it to the pod network, for example \
         {example:?}, or {switch} to false"
    )]
    NoNetwork {
        /// The key.
        key: &'static str,
        /// A usable value.
        example: &'static str,
        /// The key that turns the family off.
        switch: &'static str,
    },
    /// Both families are off.
    #[error(
        "the network configuration enables neither IPv4 nor IPv6; set EnableIPv4 or EnableIPv6 to \
         true"
    )]
    NoFamily,
    /// The pod network cannot be cut into subnets.
    #[error(
        "{key} {network} is too small to be cut into node subnets; it can be at most a /{longest}"
    )]
    NetworkTooSmall {
        /// The key.
        key: &'static str,
        /// Its value.
        network: IpNet,
        /// The longest prefix length accepted without a subnet length.
        longest: u8,
    },
    /// The subnet length does not suit the network.
    #[error(
        "{key} {len} does not suit the network {network}: it must lie in {shortest}..={longest}, \
         so that at \
         least four subnets fit"
    )]
    SubnetLen {
        /// The key.
        key: &'static str,
        /// Its value.
        len: u64,
        /// The pod network.
        network: IpNet,
        /// The shortest length accepted.
        shortest: u8,
        /// The longest length accepted.
        longest: u8,
    },
    /// A bound of the subnet range lies elsewhere.
    #[error("{key} {address} is not in the network {network}; choose an address inside")]
    OutsideNetwork {
        /// The key.
        key: &'static str,
        /// Its value.
        address: IpAddr,
        /// The pod network.
        network: IpNet,
    },
    /// A bound of the subnet range is not the first address of a subnet.
    #[error("{key} {address} is not the first address of a /{subnet_len} subnet; align it")]
    Misaligned {
        /// The key.
        key: &'static str,
        /// Its value.
        address: IpAddr,
        /// The length of a node's subnet.
        subnet_len: u8,
    },
    /// The subnet range is empty.
    #[error("{min_key} {min} lies above {max_key} {max}; swap or widen them")]
    MinAboveMax {
        /// The key of the lower bound.
        min_key: &'static str,
        /// The lower bound.
        min: IpAddr,
        /// The key of the upper bound.
        max_key: &'static str,
        /// The upper bound.
        max: IpAddr,
    },
    /// Another program's name of what is served.
    #[error("{key} {value} in the network configuration is another name; {instead}")]
    OtherName {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// The remedy: what to write instead.
        instead: &'static str,
    },
    /// The backend has no IPv6.
    #[error(
        "Backend.Type {backend} carries IPv4 alone; set EnableIPv6 to false and EnableIPv4 to \
         true, or write \"Type\": \
         \"vxlan\""
    )]
    Ipv4Only {
        /// Its type.
        backend: &'static str,
    },
    /// No `Backend` object.
    #[error(
        "the network configuration has no Backend, which flannel reads as udp; write \"Backend\": \
         {{\"Type\": \
         \"vxlan\"}}, or \"udp\" for what flannel does"
    )]
    NoBackend,
    /// A `Backend` object without a `Type`.
    #[error("Backend in the network configuration has no Type; write \"Type\": \"vxlan\"")]
    NoBackendType,
    /// A backend type that neither flannel nor this agent has.
    #[error(
        "Backend.Type {:?} in the network configuration is unknown; write {built}",
        excerpt(name)
    )]
    UnknownBackend {
        /// The type as written.
        name: String,
        /// The types there are.
        built: &'static str,
    },
}

impl ConfigMistake {
    fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::OtherName { .. }
                | Self::NoFamily
                | Self::Ipv4Only { .. }
                | Self::NoBackend
                | Self::NoBackendType
                | Self::UnknownBackend { .. }
        )
    }
}

/// A network configuration that cannot be used, with every mistake in it; one to a line where there
/// are several.
#[derive(Debug)]
pub struct ConfigError(Vec<ConfigMistake>);

impl ConfigError {
    pub(super) const fn new(mistakes: Vec<ConfigMistake>) -> Self {
        Self(mistakes)
    }

    /// The mistakes, in the order of the keys.
    pub fn mistakes(&self) -> &[ConfigMistake] {
        &self.0
    }

    /// Returns true if waiting is pointless: the text is well-formed and asks for what this build
    /// does not have. Any other mistake may be corrected by the next write to the store, so it is
    /// retried.
    pub fn is_refusal(&self) -> bool {
        self.0.iter().any(ConfigMistake::is_refusal)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [mistake] = &self.0[..] {
            return mistake.fmt(f);
        }
        write!(f, "{} mistakes:", self.0.len())?;
        self.0
            .iter()
            .try_for_each(|mistake| write!(f, "\n  {mistake}"))
    }
}

impl std::error::Error for ConfigError {}
