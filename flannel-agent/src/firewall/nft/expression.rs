//! Expressions: what statements look at.

use serde_json::Value;

use super::{Reader, texts};
use crate::firewall::catalogue::{self, ElementFacts, ElementKind, FlagTest};

/// All bits of a flag field.
const ALL: u8 = 0xff;

impl Reader<'_> {
    pub(super) fn expression(&mut self, value: &Value) {
        match value {
            Value::String(name) if name.starts_with('@') => self.refer(name),
            Value::Array(values) => values.iter().for_each(|value| self.expression(value)),
            Value::Object(members) => members.iter().for_each(|(name, member)| self.member(name, member)),
            _ => {}
        }
    }

    fn member(&mut self, name: &str, member: &Value) {
        match name {
            "set" | "concat" | "range" | "|" | "&" | "^" | "<<" | ">>" => self.expression(member),
            "prefix" => self.expression(&member["addr"]),
            "elem" => self.element(member),
            "map" => {
                self.expression(&member["key"]);
                self.expression(&member["data"]);
            }
            "jump" | "goto" => self.verdict(name, member),
            "drop" => self.rule.drops = true,
            "accept" | "continue" | "return" => {}
            _ => {
                let field = field_name(name, member);
                self.name(ElementKind::Field, field.as_deref().unwrap_or(name), ElementFacts::None);
                if name == "jhash" {
                    self.expression(&member["expr"]);
                }
            }
        }
    }

    /// An element of a set, with what is done when it is met.
    fn element(&mut self, member: &Value) {
        self.expression(&member["val"]);
        for name in ["limit", "quota"] {
            if member.get(name).is_some() {
                self.name(ElementKind::Statement, name, ElementFacts::None);
            }
        }
    }

    pub(super) fn verdict(&mut self, name: &str, member: &Value) {
        match member["target"].as_str() {
            Some(target) => {
                self.rule.targets.insert(target.to_owned());
            }
            // A chain that is chosen by an expression.
            None => self.name(ElementKind::Statement, &format!("{name} by expression"), ElementFacts::None),
        }
    }
}

/// The catalogue's name of a field, such as `ip dscp` or `ct bytes`; none for what has no fields.
pub(super) fn field_name(name: &str, member: &Value) -> Option<String> {
    let text = |key: &str| member[key].as_str();
    match name {
        "payload" => match (text("protocol"), text("field")) {
            _ if member.get("tunnel").is_some() => Some(format!("{} payload", text("tunnel")?)),
            (Some(protocol), Some(field)) => Some(format!("{protocol} {field}")),
            _ => Some("raw payload".to_owned()),
        },
        "tcp option" if text("name").is_none() => Some("tcp option raw".to_owned()),
        "exthdr" | "tcp option" | "ip option" | "sctp chunk" | "dccp option" => {
            let type_ = || member["type"].as_u64().map(|number| number.to_string());
            Some(format!("{name} {}", text("name").map(str::to_owned).or_else(type_).unwrap_or_default()))
        }
        "meta" | "ct" | "rt" | "socket" | "osf" | "ipsec" | "tunnel" => Some(format!("{name} {}", text("key")?)),
        "fib" | "numgen" | "jhash" | "symhash" => Some(name.to_owned()),
        _ => None,
    }
}

/// The tests a comparison of TCP flags makes; with a set, one for each element.
pub(super) fn flag_tests(op: &str, mask: Option<&Value>, right: &Value) -> Vec<FlagTest> {
    let elements = right.get("set").and_then(Value::as_array);
    let values = elements.map_or(std::slice::from_ref(right), Vec::as_slice);
    let tests = values.iter().map(|value| flag_test(op, mask, value));
    let tests: Vec<FlagTest> = tests.collect();
    // A packet has to equal one of them: exact only if no replayed packet equals any.
    if elements.is_some() && tests.iter().any(|test| !is_never(*test)) { vec![FlagTest::Other] } else { tests }
}

const fn is_never(test: FlagTest) -> bool {
    matches!(test, FlagTest::Equal { value, .. } if value & 0x07 != 0)
}

fn flag_test(op: &str, mask: Option<&Value>, right: &Value) -> FlagTest {
    let mask = mask.map_or(Some(ALL), bits);
    match (op, mask, bits(right)) {
        ("==", Some(mask), Some(value)) => FlagTest::Equal { mask, value, negated: false },
        ("!=", Some(mask), Some(value)) => FlagTest::Equal { mask, value, negated: true },
        ("in", Some(ALL), Some(mask)) => FlagTest::Any { mask, negated: false },
        ("!", Some(ALL), Some(mask)) => FlagTest::Any { mask, negated: true },
        _ => FlagTest::Other,
    }
}

/// Flags as a number, a name, or names joined by `|` or in a list.
fn bits(value: &Value) -> Option<u8> {
    match value {
        Value::Number(number) => u8::try_from(number.as_u64()?).ok(),
        Value::Object(members) if !members.contains_key("|") => None,
        value => texts(value).iter().try_fold(0, |all, name| {
            let flag = catalogue::flag(name).or_else(|| name.parse().ok())?;
            Some(all | flag)
        }),
    }
}
