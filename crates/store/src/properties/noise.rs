//! Content written by accident: random bytes, and real texts with errors in them.

use proptest::{collection::vec, prelude::*};
use serde_json::{Map, Value};

/// Values that are almost what is asked for.
const ALMOST: &[&str] = &[
    "",
    "null",
    "true",
    "0.0.0.0",
    "255.255.255.255",
    "127.0.0.1",
    "192.0.2.1 ",
    "::",
    "::ffff:192.0.2.1",
    "fd00::1%eth0",
    "10.5.0.0/33",
    "10.5.3.0/24",
    "0.0.0.0/0",
    "10.5.3.0-24",
    "10.5.3.0-24&fd00::-64",
    "00:00:00:00:00:00",
    "ff:ff:ff:ff:ff:ff",
    "02:00:00:00:00:01",
    "02-00-00-00-00-01",
    "{",
    "{\"VtepMAC\":\"\"}",
    "\u{0}",
    "\u{202e}01",
];

/// Any JSON value, not deep.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        proptest::sample::select(ALMOST).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((".{0,4}", inner), 0..4)
                .prop_map(|pairs| Value::from(pairs.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A JSON text with a few values, keys or bytes changed; or nothing like it.
pub(crate) fn damaged(text: String) -> impl Strategy<Value = Vec<u8>> {
    let value: Value = serde_json::from_str(&text).expect("damage is done to something whole");
    let changes = vec((any::<prop::sample::Index>(), any_json()), 1..4);
    let edits = vec(
        (
            any::<prop::sample::Index>(),
            0..4_usize,
            vec(any::<u8>(), 0..4),
        ),
        1..6,
    );
    let bytes = text.into_bytes();
    prop_oneof![
        4 => changes.prop_map(move |changes| {
            let mut value = value.clone();
            for (at, with) in changes {
                let mut at = at.index(count(&value));
                replace(&mut value, &mut at, &with);
            }
            value.to_string().into_bytes()
        }),
        3 => edits.prop_map(move |edits| {
            let mut bytes = bytes.clone();
            for (at, remove, insert) in edits {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..(at + remove).min(bytes.len()), insert);
            }
            bytes
        }),
        1 => vec(any::<u8>(), 0..64),
    ]
}

/// The value and all in it, and each key of an object once more.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(|member| 1 + count(member)).sum(),
        _ => 0,
    }
}

/// Replaces the value at a place in that order; at a key's place, removes the member.
fn replace(value: &mut Value, at: &mut usize, with: &Value) -> bool {
    if *at == 0 {
        value.clone_from(with);
        return true;
    }
    *at -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| replace(item, at, with)),
        Value::Object(members) => {
            let keys: Vec<_> = members.keys().cloned().collect();
            keys.iter().any(|key| {
                if *at == 0 {
                    members.remove(key);
                    return true;
                }
                *at -= 1;
                members
                    .get_mut(key)
                    .is_some_and(|member| replace(member, at, with))
            })
        }
        _ => false,
    }
}
