//! The content of subnet.env for its readers: the CNI plugin and the Docker options need the whole
//! file, the agent's next start one value.
//!
//! This is a separate crate because the CNI plugin is started for every pod and shares no other
//! code with the agent. Pure: the caller reads the file and names it in the error. The agent writes
//! it.

mod lines;

#[cfg(test)]
mod tests;

use std::str::FromStr;

use ipnet::{Ipv4Net, Ipv6Net};

use self::lines::Line;
pub use self::lines::value_of;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetFile {
    /// The pod networks and our subnet in them, IPv4.
    pub v4: Networks<Ipv4Net>,
    /// The same, IPv6.
    pub v6: Networks<Ipv6Net>,
    /// The MTU of pods, in bytes.
    pub mtu: u32,
    /// True if the agent masquerades, so that others need not.
    pub ip_masq: bool,
}

/// The networks of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks<P> {
    /// The pod networks, in the order of the file, each once.
    pub networks: Vec<P>,
    /// This node's subnet, as written: the host part is the gateway's.
    pub subnet: Option<P>,
}

/// The reason why a text is not a valid subnet.env.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Required values are missing. Of the two families one is enough.
    #[error("is missing {}", .0.join(", "))]
    Missing(Vec<&'static str>),
    /// The name of a value without one.
    #[error("has {name} without a value in line {line}")]
    NoValue {
        /// The name.
        name: &'static str,
        /// Counted from 1.
        line: usize,
    },
    /// A value that cannot be one.
    #[error("has {name}={value:?} in line {line}, which is not {expected}")]
    Value {
        /// The name.
        name: &'static str,
        /// The text.
        value: String,
        /// The expected form.
        expected: &'static str,
        /// Counted from 1.
        line: usize,
    },
}

const NETWORK: &str = "FLANNEL_NETWORK";
const IPV6_NETWORK: &str = "FLANNEL_IPV6_NETWORK";
const SUBNET: &str = "FLANNEL_SUBNET";
const IPV6_SUBNET: &str = "FLANNEL_IPV6_SUBNET";
const MTU: &str = "FLANNEL_MTU";
const IPMASQ: &str = "FLANNEL_IPMASQ";

/// In the order in which missing ones are listed.
const NAMES: [&str; 6] = [NETWORK, IPV6_NETWORK, SUBNET, IPV6_SUBNET, MTU, IPMASQ];

impl SubnetFile {
    /// Reads the text. Of a name that occurs twice the last value counts; unknown names are
    /// ignored.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let found = Found::new(text)?;
        let v4 = Networks {
            networks: found.list(NETWORK)?,
            subnet: found.one(SUBNET, CIDR)?,
        };
        let v6 = Networks {
            networks: found.list(IPV6_NETWORK)?,
            subnet: found.one(IPV6_SUBNET, CIDR)?,
        };
        let mtu: Option<u32> = found.one(MTU, "a number of bytes")?;
        let ip_masq: Option<String> = found.one(IPMASQ, "a word")?;
        match (mtu, ip_masq) {
            (Some(mtu), Some(ip_masq))
                if found.has(NETWORK, IPV6_NETWORK) && found.has(SUBNET, IPV6_SUBNET) =>
            {
                Ok(Self {
                    v4,
                    v6,
                    mtu,
                    ip_masq: ip_masq == "true",
                })
            }
            _ => Err(ParseError::Missing(found.missing())),
        }
    }
}

const CIDR: &str = "a CIDR of its family";

/// The known assignments of a text, by place in [`NAMES`].
struct Found<'a>([Option<(&'a str, usize)>; NAMES.len()]);

impl<'a> Found<'a> {
    fn new(text: &'a str) -> Result<Self, ParseError> {
        let mut found = [None; NAMES.len()];
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let (name, value) = match Line::read(line) {
                Line::Assignment { name, value } => {
                    (name, Some(value).filter(|value| !value.is_empty()))
                }
                Line::Word(name) => (name, None),
                Line::Nothing => continue,
            };
            let Some(place) = NAMES.iter().position(|known| *known == name) else {
                continue;
            };
            let value = value.ok_or(ParseError::NoValue {
                name: NAMES[place],
                line: number,
            })?;
            found[place] = Some((value, number));
        }
        Ok(Self(found))
    }

    fn get(&self, name: &str) -> Option<(&'a str, usize)> {
        NAMES
            .iter()
            .position(|known| *known == name)
            .and_then(|place| self.0[place])
    }

    fn has(&self, name: &str, other: &str) -> bool {
        self.get(name).is_some() || self.get(other).is_some()
    }

    fn one<T: FromStr>(
        &self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, ParseError> {
        let parse = |(value, line): (&str, usize)| {
            value.parse().ok().ok_or_else(|| ParseError::Value {
                name,
                value: value.to_owned(),
                expected,
                line,
            })
        };
        self.get(name).map(parse).transpose()
    }

    fn list<P: FromStr + PartialEq>(&self, name: &'static str) -> Result<Vec<P>, ParseError> {
        let Some((value, line)) = self.get(name) else {
            return Ok(Vec::new());
        };
        let mut networks = Vec::new();
        for item in value.split(',') {
            let refused = || ParseError::Value {
                name,
                value: item.to_owned(),
                expected: CIDR,
                line,
            };
            let network = item.trim().parse().ok().ok_or_else(refused)?;
            if !networks.contains(&network) {
                networks.push(network);
            }
        }
        Ok(networks)
    }

    fn missing(&self) -> Vec<&'static str> {
        let either_is_enough = [(NETWORK, IPV6_NETWORK), (SUBNET, IPV6_SUBNET)];
        let excused = |name: &str| {
            either_is_enough
                .iter()
                .any(|(one, other)| (name == *one || name == *other) && self.has(one, other))
        };
        NAMES
            .into_iter()
            .filter(|name| self.get(name).is_none() && !excused(name))
            .collect()
    }
}
