//! Fields of the documents that commands print with `-o json`, and the names of closed sets in
//! them, by their schemas.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use super::{Interface, difference, docs};

/// The kind of the line with a document's version.
const DOCUMENT: &str = "document";
/// Kinds of which more may come and none may go while the version stays.
const FIELD: &str = "field";
const VALUE: &str = "value";

pub(super) fn all() -> Vec<Interface> {
    let folder = fs::read_dir(docs("docs/reference/schemas")).expect("the schemas");
    let mut all = Vec::new();
    for file in folder {
        let path = file.expect("a file").path();
        let text = fs::read_to_string(&path).expect("a schema");
        let schema: Value = serde_json::from_str(&text).expect("JSON");
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .replace(".schema.json", "");
        let version = schema["properties"]["schema_version"]["const"].to_string();
        all.push(Interface::new(DOCUMENT, "-", &name, &version));
        add(&mut all, &name, &schema);
        for (definition, schema) in schema["$defs"].as_object().into_iter().flatten() {
            add(&mut all, &format!("{name}.{definition}"), schema);
        }
    }
    all
}

/// Adds the fields of an object and the names of a closed set, and those in what it is made of.
fn add(all: &mut Vec<Interface>, place: &str, schema: &Value) {
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        all.push(Interface::new(FIELD, place, field, &form(schema)));
        add(all, &format!("{place}.{field}"), schema);
    }
    for name in schema["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        all.push(Interface::new(VALUE, place, name, ""));
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        for part in schema[key].as_array().into_iter().flatten() {
            all.extend(
                part["const"]
                    .as_str()
                    .map(|name| Interface::new(VALUE, place, name, "")),
            );
            add(all, place, part);
        }
    }
    if schema["items"].is_object() {
        add(all, place, &schema["items"]);
    }
}

/// The type of a value in a few words.
fn form(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('/').next().unwrap_or_default().to_owned();
    }
    if schema["items"].is_object() {
        return format!("array of {}", form(&schema["items"]));
    }
    let alternatives = ["oneOf", "anyOf"]
        .iter()
        .find_map(|key| schema[key].as_array());
    match (&schema["type"], alternatives) {
        (Value::String(name), _) => name.clone(),
        (Value::Array(names), _) => names
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" or "),
        (_, Some(parts)) => parts.iter().map(form).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    }
}

/// Requires a greater version of a document that has lost or changed a part.
pub(super) fn expect_version(released: &BTreeSet<Interface>, present: &BTreeSet<Interface>) {
    let is_same = |document: &str| {
        let is_it = |line: &&Interface| line.kind == DOCUMENT && line.name == document;
        released.iter().find(is_it) == present.iter().find(is_it)
    };
    for line in difference(released, present).filter(|line| released.contains(line)) {
        let document = line.place.split('.').next().unwrap_or_default();
        let is_broken = [FIELD, VALUE].contains(&line.kind.as_str()) && is_same(document);
        assert!(
            !is_broken,
            "the document {document} needs a greater schema_version: it had {line}"
        );
    }
}

#[test]
fn a_field_that_goes_needs_a_version() {
    let set = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| Interface::read(line))
            .collect::<BTreeSet<_>>()
    };
    let before = set(&["document\t-\tstatus\t1", "field\tstatus.Peer\tmac\tstring"]);
    let more = set(&[
        "document\t-\tstatus\t1",
        "field\tstatus.Peer\tmac\tstring",
        "field\tstatus.Peer\tkey\tstring",
    ]);
    let less = set(&["document\t-\tstatus\t1"]);
    let raised = set(&["document\t-\tstatus\t2"]);
    expect_version(&before, &more);
    expect_version(&before, &raised);
    let refused = std::panic::catch_unwind(|| expect_version(&before, &less));
    assert!(refused.is_err(), "a field was lost in the same version");
}
