//! What the kernel holds for a node, as text lines: taken before and after, two equal snapshots prove that nothing
//! was left behind.
//!
//! Left out on purpose: what ordinary traffic makes and lets expire (neighbours and bridge entries that are not
//! permanent), local routes of link-local addresses, counters, and sysctls.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::{Context as _, Result};
use aya::programs::{SchedClassifier, TcAttachType};
use serde_json::Value;

use crate::Host;

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

const TEXT_SECTIONS: [(&str, &str); 3] =
    [("xfrm-state", "ip xfrm state"), ("xfrm-policy", "ip xfrm policy"), ("nftables", "nft -s list ruleset")];

/// Members that change by themselves.
const VOLATILE: [&str; 8] = [
    "valid_life_time",
    "preferred_life_time",
    "used",
    "updated",
    "expires",
    // Duplicate address detection and the link watch end some time after the request that started them.
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
        let devices = devices(host)?;
        snapshot.put("tc-filter", filters(host, &devices)?);
        snapshot.put("tcx", host.enter(|| tcx(&devices))??);
        let mut pins = Vec::new();
        list(&host.outside_path("/sys/fs/bpf"), "", &mut pins)?;
        snapshot.put("bpffs", pins);
        Ok(snapshot)
    }

    /// What is in `later` and not here (`+`), and the other way round (`-`); empty when they are equal.
    pub fn changes(&self, later: &Self) -> String {
        let mut text = String::new();
        let none = BTreeSet::new();
        for section in later.sections.keys().chain(self.sections.keys()).collect::<BTreeSet<_>>() {
            let before = self.sections.get(section).unwrap_or(&none);
            let after = later.sections.get(section).unwrap_or(&none);
            for (sign, lines) in [("-", before.difference(after)), ("+", after.difference(before))] {
                for line in lines {
                    writeln!(text, "{sign} {section}: {line}").expect("text grows");
                }
            }
        }
        text
    }

    /// The lines of one section.
    pub fn section(&self, name: &str) -> impl Iterator<Item = &str> {
        self.sections.get(name).into_iter().flatten().map(String::as_str)
    }

    fn put(&mut self, section: &'static str, lines: impl IntoIterator<Item = String>) {
        self.sections.entry(section).or_default().extend(lines);
    }
}

/// Not an entry that comes and goes by itself.
fn lasts(entry: &Value) -> bool {
    let text = |member: &str| entry[member].as_str().unwrap_or_default();
    if !entry["mac"].is_null() {
        // Group addresses are those a device listens to; a learned address is neither permanent nor flagged.
        let group = ["33:33:", "01:"].iter().any(|prefix| text("mac").starts_with(prefix));
        let flagged = entry["flags"].as_array().is_some_and(|flags| !flags.is_empty());
        return !group && (flagged || text("state") == "permanent");
    }
    // Made when duplicate address detection ends.
    !(text("dst").starts_with("fe80::") && text("table") == "local")
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
    links.iter().map(|link| Ok(link["ifname"].as_str().context("a link without a name")?.to_owned())).collect()
}

fn filters(host: &Host, devices: &[String]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for device in devices {
        for direction in ["ingress", "egress"] {
            let entries: Vec<Value> = host.json(&["tc", "-j", "filter", "show", "dev", device, direction])?;
            found.extend(entries.into_iter().map(|entry| format!("{device} {direction} {}", stripped(entry))));
        }
    }
    Ok(found)
}

/// Runs inside the host: device names mean something else outside.
fn tcx(devices: &[String]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for device in devices {
        for (direction, attach_type) in [("ingress", TcAttachType::Ingress), ("egress", TcAttachType::Egress)] {
            let (_, programs) = SchedClassifier::query_tcx(device, attach_type)
                .with_context(|| format!("TCX programs at {device} {direction}"))?;
            for program in programs {
                found.push(format!("{device} {direction} {}", program.name_as_str().unwrap_or("?")));
            }
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
