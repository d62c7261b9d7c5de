//! The reader of `nft -j list ruleset`. Pure.
//!
//! Rules are read statement by statement ([`statement`]), and what they look at expression by
//! expression ([`expression`]): a name that stands where a statement or an expression is expected
//! and is in no table of the catalogue is unknown, and named as such.

mod expression;
mod statement;

use std::collections::BTreeSet;

use serde_json::Value;

use super::model::{ByName, ChainHook, HostChain, HostRule, Ruleset};

/// The rules; none if this is not such a document.
pub(super) fn parse(text: &str) -> Option<Ruleset> {
    let document: Value = serde_json::from_str(text).ok()?;
    let objects = document["nftables"].as_array()?;
    let sets = sets(objects);
    let mut found = Ruleset::default();
    for object in objects {
        if let Some(chain) = object.get("chain") {
            found.chains.push(self::chain(chain)?);
        } else if let Some(rule) = object.get("rule") {
            found.rules.push(self::rule(rule, &sets)?);
        }
    }
    Some(found)
}

/// A set or map, as far as rules that refer to it are concerned.
#[derive(Debug, Default)]
struct Set {
    /// The parts every look-up adds to a rule.
    parts: HostRule,
    /// Seconds its elements last.
    timeout: Option<u64>,
}

fn table(object: &Value) -> Option<String> {
    Some(format!("{} {}", object["family"].as_str()?, object["table"].as_str()?))
}

fn chain(object: &Value) -> Option<HostChain> {
    let hook = object["hook"].as_str().map(|at| ChainHook {
        at: at.to_owned(),
        nat: object["type"] == "nat",
        drops: object["policy"] == "drop",
        devices: devices(&object["dev"]),
    });
    Some(HostChain { table: table(object)?, name: object["name"].as_str()?.to_owned(), hook })
}

/// One, several, or none.
fn devices(value: &Value) -> Vec<String> {
    let names = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn sets(objects: &[Value]) -> ByName<Set> {
    let set = |object: &Value| {
        let set = object.get("map").or_else(|| object.get("set"))?;
        let (table, name) = (table(set)?, format!("@{}", set["name"].as_str()?));
        let mut reader = Reader { sets: &ByName::new(), rule: HostRule::new(&table, "") };
        reader.statements(&set["stmt"]);
        if object.get("map").is_some() {
            reader.expression(&set["elem"]);
        }
        Some(((table, name), Set { parts: reader.rule, timeout: set["timeout"].as_u64() }))
    };
    objects.iter().filter_map(set).collect()
}

fn rule(object: &Value, sets: &ByName<Set>) -> Option<HostRule> {
    let mut reader = Reader { sets, rule: HostRule::new(&table(object)?, object["chain"].as_str()?) };
    reader.statements(&object["expr"]);
    Some(reader.rule)
}

/// A rule that is being read.
struct Reader<'a> {
    sets: &'a ByName<Set>,
    rule: HostRule,
}

impl<'a> Reader<'a> {
    fn set(&self, name: &str) -> Option<&'a Set> {
        self.sets.get(&(self.rule.table.clone(), name.to_owned()))
    }

    /// Takes over what a set named here does at a look-up, and where it leads to.
    fn refer(&mut self, name: &str) {
        if let Some(set) = self.set(name) {
            self.rule.parts.extend(set.parts.parts.iter().cloned());
            self.rule.targets.extend(set.parts.targets.iter().cloned());
            self.rule.drops |= set.parts.drops;
        }
    }
}

/// The member of an object that has one.
fn only_member(value: &Value) -> Option<(&str, &Value)> {
    value.as_object()?.iter().next().map(|(name, member)| (name.as_str(), member))
}

/// The texts of a value: one, a list, or a set of them.
fn texts(value: &Value) -> BTreeSet<String> {
    match value {
        Value::String(text) => BTreeSet::from([text.clone()]),
        Value::Number(number) => BTreeSet::from([number.to_string()]),
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        _ => BTreeSet::new(),
    }
}
