//! The part of strategic merge that a Node's status subresource takes: annotations and conditions.
//! Everything else in a patch is an error here, because a real server would drop it without a word.

use serde_json::{Map, Value, json};

pub(super) fn annotations(node: &mut Value, patch: &Value) {
    let keys: Vec<_> = patch.as_object().expect("an object").keys().collect();
    assert!(
        keys.iter()
            .all(|key| ["metadata", "status"].contains(&key.as_str())),
        "{keys:?}"
    );
    let Some(changes) = patch["metadata"]["annotations"].as_object() else {
        return;
    };
    if node["metadata"]["annotations"].is_null() {
        node["metadata"]["annotations"] = Map::new().into();
    }
    let annotations = node["metadata"]["annotations"]
        .as_object_mut()
        .expect("an object");
    for (name, value) in changes {
        if value.is_null() {
            annotations.remove(name);
        } else {
            assert!(value.is_string(), "annotation {name} is {value}");
            annotations.insert(name.clone(), value.clone());
        }
    }
}

/// Conditions are merged by their type.
pub(super) fn conditions(node: &mut Value, patch: &Value) {
    let Some(changes) = patch["status"]["conditions"].as_array() else {
        return;
    };
    if !node["status"]["conditions"].is_array() {
        node["status"]["conditions"] = json!([]);
    }
    let conditions = node["status"]["conditions"]
        .as_array_mut()
        .expect("an array");
    for change in changes {
        conditions.retain(|condition| condition["type"] != change["type"]);
        conditions.push(change.clone());
    }
}

/// [RFC 7396, section 2](https://www.rfc-editor.org/rfc/rfc7396#section-2).
pub(super) fn merge_patch(target: &mut Value, patch: &Value) {
    let Some(changes) = patch.as_object() else {
        return *target = patch.clone();
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().expect("an object");
    for (key, value) in changes {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge_patch(fields.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}
