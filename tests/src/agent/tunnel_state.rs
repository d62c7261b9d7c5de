//! The state that the kernel holds for the tunnel of one node, as `ip -j` and `bridge -j` print it.

use std::{collections::BTreeSet, fmt::Write as _};

use anyhow::Result;
use serde_json::Value;

use crate::Host;

/// Addresses, permanent neighbours and FDB entries of the tunnel device, and the routes into the
/// pod network by whatever device. The lines are JSON; two equal states have equal lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelState {
    lines: BTreeSet<String>,
}

impl TunnelState {
    /// Reads the IPv4 state of a host.
    pub fn of(host: &Host) -> Result<Self> {
        Self::read(host, "-4", "flannel.1", "10.244.0.0/16")
    }

    /// Reads the IPv6 state of a host.
    pub fn of_ipv6(host: &Host) -> Result<Self> {
        Self::read(host, "-6", "flannel-v6.1", "fd00:10:244::/48")
    }

    fn read(host: &Host, family: &str, device: &str, network: &str) -> Result<Self> {
        let mut state = Self::default();
        let addresses: Vec<Value> = host.json(&[
            "ip", "-j", family, "address", "show", "dev", device, "scope", "global",
        ])?;
        let addresses = addresses
            .iter()
            .flat_map(|link| link["addr_info"].as_array().cloned().unwrap_or_default());
        state.put(
            "address",
            addresses.map(|address| format!("{}/{}", address["local"], address["prefixlen"])),
        );
        let routes: Vec<Value> = host.json(&[
            "ip", "-j", family, "-details", "route", "show", "root", network,
        ])?;
        // Only flannel-agent has the unreachable route for the whole network; stock has none.
        let peers = routes
            .iter()
            .filter(|route| route["dev"] != "cni0" && route["type"] != "unreachable");
        state.put("route", peers.map(Value::to_string));
        let neighbours = [
            "ip",
            "-j",
            family,
            "neigh",
            "show",
            "dev",
            device,
            "nud",
            "permanent",
        ];
        let neighbours: Vec<Value> = host.json(&neighbours)?;
        state.put("neighbour", neighbours.iter().map(Value::to_string));
        let fdb: Vec<Value> = host.json(&["bridge", "-j", "fdb", "show", "dev", device])?;
        let entries = fdb.iter().filter(|entry| !entry["dst"].is_null());
        state.put("fdb", entries.map(Value::to_string));
        Ok(state)
    }

    /// The lines that have all of `words` in them.
    pub fn matching(&self, words: &[&str]) -> Vec<&str> {
        let has_all = |line: &&String| words.iter().all(|word| line.contains(word));
        self.lines
            .iter()
            .filter(has_all)
            .map(String::as_str)
            .collect()
    }

    /// Returns the lines only in `later` (`+`), and those only in `self` (`-`).
    pub fn changes(&self, later: &Self) -> String {
        let mut text = String::new();
        for (sign, lines) in [
            ("-", self.lines.difference(&later.lines)),
            ("+", later.lines.difference(&self.lines)),
        ] {
            for line in lines {
                writeln!(text, "{sign} {line}").expect("text grows");
            }
        }
        text
    }

    fn put(&mut self, kind: &str, lines: impl IntoIterator<Item = String>) {
        self.lines
            .extend(lines.into_iter().map(|line| format!("{kind} {line}")));
    }
}
