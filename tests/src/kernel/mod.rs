//! The kernel past the agent: counters of a host, conntrack, queues of packets, programs of others.

pub mod conntrack;
pub mod hooks;
pub mod netfilter_program;
mod nfnetlink;
pub mod nfqueue;
pub mod xdp;

use std::fs;

use anyhow::{Context as _, Result};

use crate::Host;

impl Host {
    /// A counter of the network namespace: `counter("Tcp", "RetransSegs")`, from `/proc/net/snmp`,
    /// `netstat` or `snmp6`.
    pub fn counter(&self, group: &str, name: &str) -> Result<u64> {
        let prefix = format!("{group}: ");
        for file in ["snmp", "netstat"] {
            let text = fs::read_to_string(format!("/proc/{}/net/{file}", self.pid()))?;
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
            if let (Some(names), Some(values)) = (lines.next(), lines.next())
                && let Some((_, value)) = names
                    .split(' ')
                    .zip(values.split(' '))
                    .find(|(known, _)| *known == name)
            {
                return value
                    .parse()
                    .with_context(|| format!("{group} {name}: {value}"));
            }
        }
        let text = fs::read_to_string(format!("/proc/{}/net/snmp6", self.pid()))?;
        let mut lines = text
            .lines()
            .filter_map(|line| line.split_once(char::is_whitespace));
        if let Some((_, value)) = lines.find(|(known, _)| known.strip_prefix(group) == Some(name)) {
            return value
                .trim()
                .parse()
                .with_context(|| format!("{group} {name}: {value}"));
        }
        anyhow::bail!("the kernel has no counter {group} {name}")
    }

    /// Segments and datagrams received with a wrong checksum, of either family.
    pub fn checksum_errors(&self) -> Result<u64> {
        ["Tcp", "Udp", "Udp6"]
            .into_iter()
            .map(|group| self.counter(group, "InCsumErrors"))
            .sum()
    }

    /// A statistic of a device: `device_counter("eth0", "rx_packets")`.
    pub fn device_counter(&self, device: &str, name: &str) -> Result<u64> {
        let path = self.outside_path(format!("/sys/class/net/{device}/statistics/{name}"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        text.trim()
            .parse()
            .with_context(|| path.display().to_string())
    }
}
