//! Targets of a probe as arguments, `KEY=KIND:ADDRESS`, and the results as JSON. Pure.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// Rounds of TCP and UDP with an echo server.
    Echo,
    /// A TCP connection to any server.
    Connect,
    /// The largest packet of UDP that an echo server receives whole.
    Mtu,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Names the result.
    pub key: usize,
    /// The kind.
    pub kind: ProbeKind,
    /// Host and port.
    pub address: String,
}

/// The result of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The key of the target.
    pub key: usize,
    /// The reason why it failed.
    pub error: Option<String>,
    /// The protocol that failed, `tcp` or `udp`.
    pub protocol: Option<String>,
    /// The name of the server that answered.
    pub server: Option<String>,
    /// The local address of the packets.
    pub local: Option<String>,
    /// The largest packet, in bytes with its IP header.
    pub size: Option<u32>,
    /// The MTU of the device that sends, in bytes.
    pub device_mtu: Option<u32>,
}

impl ProbeKind {
    const ALL: [Self; 3] = [Self::Echo, Self::Connect, Self::Mtu];

    const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Connect => "connect",
            Self::Mtu => "mtu",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}:{}", self.key, self.kind.name(), self.address)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no target; expected KEY=KIND:ADDRESS");
        let (key, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (kind, address) = rest.split_once(':').ok_or_else(wrong)?;
        let kind = ProbeKind::ALL
            .into_iter()
            .find(|known| known.name() == kind)
            .ok_or_else(wrong)?;
        Ok(Self {
            key: key.parse().map_err(|_not_a_number| wrong())?,
            kind,
            address: address.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_they_are_written() {
        for kind in ProbeKind::ALL {
            for address in ["10.244.1.2:7472", "[fd00::2]:7472", "example.com:443"] {
                let target = Target {
                    key: 3,
                    kind,
                    address: address.to_owned(),
                };
                assert_eq!(target.to_string().parse(), Ok(target));
            }
        }
        for wrong in ["", "3", "3=echo", "3=ping:10.0.0.1:1", "x=echo:10.0.0.1:1"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
