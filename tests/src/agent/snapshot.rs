//! The state that the kernel holds for a node, as text lines. Two equal snapshots, taken before and
//! after, prove that no state is left behind.
//!
//! Left out on purpose: entries that ordinary traffic makes and lets expire (neighbours and bridge
//! entries that are not permanent), local routes of link-local addresses, counters, sysctls, and
//! the built-in chains that iptables makes in nftables with its first use and keeps.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::{Context as _, Result};
use aya::programs::TcAttachType;
use serde_json::Value;

use crate::{Host, kernel::hooks::tcx_here};

/// The state of one host: section -> lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    sections: BTreeMap<&'static str, BTreeSet<String>>,
}

/// Each prints a JSON array; an element is a line of the snapshot.
const JSON_SECTIONS: [(&str, &str); 9] = [
    ("address", "ip -j address"),
    ("route", "ip -j route show table all"),
    ("route6", "ip -j -6 route show table all"),
    ("neighbour", "ip -j neigh show nud permanent"),
    ("rule", "ip -j rule"),
    ("rule6", "ip -j -6 rule"),
    ("nexthop", "ip -j nexthop"),
    ("fdb", "bridge -j fdb"),
    ("qdisc", "tc -j qdisc show"),
];

const TEXT_SECTIONS: [(&str, &str); 2] = [
    ("xfrm-state", "ip xfrm state"),
    ("xfrm-policy", "ip xfrm policy"),
];

/// The chains of iptables that the kernel calls.
const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// Members that change by themselves.
const VOLATILE: [&str; 8] = [
    "valid_life_time",
    "preferred_life_time",
    "used",
    "updated",
    "expires",
    // Duplicate address detection and the link watch end some time after the request that started
    // them.
    "tentative",
    "operstate",
    "link_index",
];

impl Snapshot {
    /// Reads the state of `host`.
    pub fn of(host: &Host) -> Result<Self> {
        let mut snapshot = Self::default();
        for (section, line) in JSON_SECTIONS {
            let argv: Vec<&str> = line.split(' ').collect();
            let entries: Vec<Value> = host.json(&argv)?;
            snapshot.put(section, entries.into_iter().filter(lasts).map(stripped));
        }
        for (section, line) in TEXT_SECTIONS {
            let text = host.sh(line)?.stdout;
            snapshot.put(section, text.lines().map(str::to_owned));
        }
        snapshot.put("nftables", rules(&host.sh("nft -s list ruleset")?.stdout));
        let devices = devices(host)?;
        snapshot.put("tc-filter", filters(host, &devices)?);
        snapshot.put("tcx", host.enter(|| tcx(&devices))??);
        let mut pins = Vec::new();
        list(&host.outside_path("/sys/fs/bpf"), "", &mut pins)?;
        snapshot.put("bpffs", pins);
        Ok(snapshot)
    }

    /// Returns the lines only in `later` (`+`), and those only in `self` (`-`); empty when they are
    /// equal.
    pub fn changes(&self, later: &Self) -> String {
        let mut text = String::new();
        let none = BTreeSet::new();
        for section in later
            .sections
            .keys()
            .chain(self.sections.keys())
            .collect::<BTreeSet<_>>()
        {
            let before = self.sections.get(section).unwrap_or(&none);
            let after = later.sections.get(section).unwrap_or(&none);
            for (sign, lines) in [
                ("-", before.difference(after)),
                ("+", after.difference(before)),
            ] {
                for line in lines {
                    writeln!(text, "{sign} {section}: {line}").expect("text grows");
                }
            }
        }
        text
    }

    /// The lines of one section.
    pub fn section(&self, name: &str) -> impl Iterator<Item = &str> {
        self.sections
            .get(name)
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    fn put(&mut self, section: &'static str, lines: impl IntoIterator<Item = String>) {
        self.sections.entry(section).or_default().extend(lines);
    }
}

/// Not an entry that comes and goes by itself.
fn lasts(entry: &Value) -> bool {
    let text = |member: &str| entry[member].as_str().unwrap_or_default();
    if !entry["mac"].is_null() {
        // Group addresses are those a device listens to; a learned address is neither permanent nor
        // flagged.
        let group = ["33:33:", "01:"]
            .iter()
            .any(|prefix| text("mac").starts_with(prefix));
        let flagged = entry["flags"]
            .as_array()
            .is_some_and(|flags| !flags.is_empty());
        return !group && (flagged || text("state") == "permanent");
    }
    // Made when duplicate address detection ends.
    !(text("dst").starts_with("fe80::") && text("table") == "local")
}

/// The lines of a listing, each with the blocks it is in, but for the frame that iptables makes by
/// itself.
fn rules(ruleset: &str) -> Vec<String> {
    let (mut blocks, mut found) = (Vec::new(), Vec::new());
    for line in ruleset
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if line == "}" {
            blocks.pop();
            continue;
        }
        let opened = line.strip_suffix(" {");
        blocks.extend(opened);
        let frame =
            opened.is_some() || line.starts_with("type ") && line.ends_with("policy accept;");
        if !(frame && is_built_in(&blocks)) {
            found.push(format!("{}: {line}", blocks.join(", ")));
        }
    }
    found
}

fn is_built_in(blocks: &[&str]) -> bool {
    let [table, chains @ ..] = blocks else {
        return false;
    };
    let iptables = [
        "table ip nat",
        "table ip filter",
        "table ip6 nat",
        "table ip6 filter",
    ]
    .contains(table);
    iptables
        && chains.iter().all(|chain| {
            chain
                .strip_prefix("chain ")
                .is_some_and(|name| HOOKS.contains(&name))
        })
}

fn stripped(mut entry: Value) -> String {
    strip(&mut entry);
    entry.to_string()
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !VOLATILE.contains(&name.as_str()));
            members.values_mut().for_each(strip);
        }
        Value::Array(elements) => elements.iter_mut().for_each(strip),
        _ => {}
    }
}

fn devices(host: &Host) -> Result<Vec<String>> {
    let links: Vec<Value> = host.json(&["ip", "-j", "link"])?;
    links
        .iter()
        .map(|link| {
            Ok(link["ifname"]
                .as_str()
                .context("a link without a name")?
                .to_owned())
        })
        .collect()
}

fn filters(host: &Host, devices: &[String]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for device in devices {
        for direction in ["ingress", "egress"] {
            let entries: Vec<Value> =
                host.json(&["tc", "-j", "filter", "show", "dev", device, direction])?;
            found.extend(
                entries
                    .into_iter()
                    .map(|entry| format!("{device} {direction} {}", stripped(entry))),
            );
        }
    }
    Ok(found)
}

/// Runs inside the host: device names mean something else outside.
fn tcx(devices: &[String]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for device in devices {
        for (direction, attach_type) in [
            ("ingress", TcAttachType::Ingress),
            ("egress", TcAttachType::Egress),
        ] {
            let programs = tcx_here(device, attach_type)
                .with_context(|| format!("TCX programs at {device} {direction}"))?;
            found.extend(
                programs
                    .into_iter()
                    .map(|program| format!("{device} {direction} {program}")),
            );
        }
    }
    Ok(found)
}

fn list(dir: &Path, prefix: &str, found: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        let name = format!("{prefix}/{}", entry.file_name().to_string_lossy());
        // The kernel puts these into every bpffs.
        if ["/maps.debug", "/progs.debug"].contains(&name.as_str()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &name, found)?;
        }
        found.push(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_of_iptables_is_no_rule() {
        let frame = "# Warning: table ip nat is managed by iptables-nft, do not touch!\ntable ip \
            nat {\n\tchain POSTROUTING \
            {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n\t}\n}\n";
        assert_eq!(rules(frame), [""; 0]);
        let rule = frame.replace("accept;\n", "accept;\n\t\tcounter\n");
        assert_eq!(rules(&rule), ["table ip nat, chain POSTROUTING: counter"]);
        assert_eq!(
            rules(&frame.replace("policy accept", "policy drop")).len(),
            1
        );
        assert_eq!(
            rules(&frame.replace("POSTROUTING", "FLANNEL-POSTRTG")).len(),
            2
        );
        assert_eq!(rules(&frame.replace("ip nat", "ip theirs")).len(), 3);
    }
}
