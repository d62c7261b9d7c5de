//! What `nft -j list ruleset` prints. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Chain, Hook, Rule, Ruleset, save::PER_PACKET};

/// The rules; none if this is not such a document.
pub(super) fn parse(text: &str) -> Option<Ruleset> {
    let document: Value = serde_json::from_str(text).ok()?;
    let objects = document["nftables"].as_array()?;
    let maps = verdict_maps(objects);
    let mut found = Ruleset::default();
    for object in objects {
        if let Some(chain) = object.get("chain") {
            found.chains.push(self::chain(chain)?);
        } else if let Some(rule) = object.get("rule") {
            found.rules.push(self::rule(rule, &maps)?);
        }
    }
    Some(found)
}

fn table(object: &Value) -> Option<String> {
    Some(format!("{} {}", object["family"].as_str()?, object["table"].as_str()?))
}

fn chain(object: &Value) -> Option<Chain> {
    let hook = object["hook"].as_str().map(|at| Hook {
        at: at.to_owned(),
        nat: object["type"] == "nat",
        drops: object["policy"] == "drop",
    });
    Some(Chain { table: table(object)?, name: object["name"].as_str()?.to_owned(), hook })
}

/// The chains that maps lead to, by table and name of the map.
fn verdict_maps(objects: &[Value]) -> BTreeMap<(String, String), BTreeSet<String>> {
    let map = |object: &Value| {
        let map = object.get("map")?;
        let mut rule = Rule::default();
        look(&map["elem"], &mut rule);
        Some(((table(map)?, format!("@{}", map["name"].as_str()?)), rule.targets))
    };
    objects.iter().filter_map(map).collect()
}

fn rule(object: &Value, maps: &BTreeMap<(String, String), BTreeSet<String>>) -> Option<Rule> {
    let (table, chain) = (table(object)?, object["chain"].as_str()?.to_owned());
    let mut rule = Rule { table: table.clone(), chain, ..Rule::default() };
    look(&object["expr"], &mut rule);
    let named: Vec<String> = strings(&object["expr"]).into_iter().filter(|text| text.starts_with('@')).collect();
    for name in named {
        rule.targets.extend(maps.get(&(table.clone(), name)).into_iter().flatten().cloned());
    }
    Some(rule)
}

/// Takes in an expression and all below it.
fn look(value: &Value, rule: &mut Rule) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| look(value, rule)),
        Value::Object(members) => {
            for (name, member) in members {
                take(name, member, rule);
                look(member, rule);
            }
        }
        _ => {}
    }
}

fn take(name: &str, member: &Value, rule: &mut Rule) {
    rule.per_packet.extend(per_packet(name, member));
    match name {
        "target" => rule.targets.extend(member.as_str().map(str::to_owned)),
        "drop" | "reject" => rule.drops = true,
        "match" if member["left"]["payload"]["field"] == "dport" => rule.ports.extend(numbers(&member["right"])),
        _ => {}
    }
}

/// What of an expression looks at single packets.
fn per_packet(name: &str, member: &Value) -> Option<&'static str> {
    let is_one_of = |key: &str, names: &[&str]| names.iter().any(|name| member[key] == *name);
    match name {
        "limit" => Some("limit"),
        "quota" => Some("quota"),
        "numgen" => Some("numgen"),
        "meta" if is_one_of("key", &["length"]) => Some("length"),
        "payload" if is_one_of("field", &["length", "totlen"]) => Some("length"),
        "ct" if is_one_of("key", &["bytes", "packets", "avgpkt"]) => Some("connbytes"),
        "xt" if is_one_of("type", &["match"]) => PER_PACKET.into_iter().find(|known| member["name"] == *known),
        _ => None,
    }
}

/// The numbers in a value: one, or a set.
fn numbers(value: &Value) -> Vec<u16> {
    match value {
        Value::Number(number) => number.as_u64().and_then(|number| u16::try_from(number).ok()).into_iter().collect(),
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        Value::Object(members) => members.values().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(strings).collect(),
        Value::Object(members) => members.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}
