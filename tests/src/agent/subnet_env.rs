//! `subnet.env` as flannel's readers see it.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use ipnet::IpNet;

/// The values that a CNI plugin takes from `subnet.env`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetEnv {
    /// The node's subnets with the gateway address `.1` (`::1`) as host part: IPv4, IPv6 or both.
    pub subnets: Vec<IpNet>,
    /// The pods' MTU in bytes.
    pub mtu: u32,
    /// True if the agent masquerades.
    pub ipmasq: bool,
}

impl SubnetEnv {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| format!("{}:\n{text}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let value = |key: &str| {
            text.lines()
                .filter_map(|line| line.split_once('='))
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value)
        };
        let mut subnets = Vec::new();
        for key in ["FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET"] {
            if let Some(text) = value(key) {
                subnets.push(text.parse().with_context(|| format!("{key}={text}"))?);
            }
        }
        anyhow::ensure!(
            !subnets.is_empty(),
            "neither FLANNEL_SUBNET nor FLANNEL_IPV6_SUBNET"
        );
        let mtu = value("FLANNEL_MTU")
            .context("no FLANNEL_MTU")?
            .parse()
            .context("FLANNEL_MTU")?;
        Ok(Self {
            subnets,
            mtu,
            ipmasq: value("FLANNEL_IPMASQ") == Some("true"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_read() {
        let text = "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.0.1/24\n\
            FLANNEL_IPV6_NETWORK=2001:cafe:42::/56\n\
            FLANNEL_IPV6_SUBNET=2001:cafe:42::1/64\nFLANNEL_MTU=1450\n\
            FLANNEL_IPMASQ=true\n";
        let env = SubnetEnv::parse(text).expect("a good file");
        assert_eq!(
            env.subnets
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            ["10.42.0.1/24", "2001:cafe:42::1/64"]
        );
        assert_eq!((env.mtu, env.ipmasq), (1450, true));
    }
}
