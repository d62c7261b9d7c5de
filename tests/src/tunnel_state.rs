//! What the kernel holds for the tunnel of one node, as `ip -j` and `bridge -j` print it.

use std::{collections::BTreeSet, fmt::Write as _};

use anyhow::Result;
use serde_json::Value;

use crate::Host;

/// The pod network of the lab's configurations.
const NETWORK: &str = "10.244.0.0/16";

/// Addresses, permanent neighbours and FDB entries of `flannel.1`, and the routes into the pod network by whatever
/// device. The lines are JSON; two equal states have equal lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelState {
    lines: BTreeSet<String>,
}

impl TunnelState {
    /// Reads the state of a host.
    pub fn of(host: &Host) -> Result<Self> {
        let mut state = Self::default();
        let addresses: Vec<Value> = host.json(&["ip", "-j", "-4", "address", "show", "dev", "flannel.1"])?;
        let addresses = addresses.iter().flat_map(|link| link["addr_info"].as_array().cloned().unwrap_or_default());
        state.put("address", addresses.map(|address| format!("{}/{}", address["local"], address["prefixlen"])));
        let routes: Vec<Value> = host.json(&["ip", "-j", "-details", "route", "show", "root", NETWORK])?;
        state.put("route", routes.iter().filter(|route| route["dev"] != "cni0").map(Value::to_string));
        let neighbours = ["ip", "-j", "neigh", "show", "dev", "flannel.1", "nud", "permanent"];
        let neighbours: Vec<Value> = host.json(&neighbours)?;
        state.put("neighbour", neighbours.iter().map(Value::to_string));
        let fdb: Vec<Value> = host.json(&["bridge", "-j", "fdb", "show", "dev", "flannel.1"])?;
        let entries = fdb.iter().filter(|entry| !entry["dst"].is_null());
        state.put("fdb", entries.map(Value::to_string));
        Ok(state)
    }

    /// The lines that have all of `words` in them.
    pub fn matching(&self, words: &[&str]) -> Vec<&str> {
        let has_all = |line: &&String| words.iter().all(|word| line.contains(word));
        self.lines.iter().filter(has_all).map(String::as_str).collect()
    }

    /// What is in `later` and not here (`+`), and the other way round (`-`).
    pub fn changes(&self, later: &Self) -> String {
        let mut text = String::new();
        for (sign, lines) in [("-", self.lines.difference(&later.lines)), ("+", later.lines.difference(&self.lines))] {
            for line in lines {
                writeln!(text, "{sign} {line}").expect("text grows");
            }
        }
        text
    }

    fn put(&mut self, kind: &str, lines: impl IntoIterator<Item = String>) {
        self.lines.extend(lines.into_iter().map(|line| format!("{kind} {line}")));
    }
}
