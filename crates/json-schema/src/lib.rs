//! Reference pages that are made from the code: the JSON schemas of the documents that commands
//! print, `docs/reference/schemas`, and tables of pages ([`page`]). Only for tests.
//!
//! A schema is made from the types of its document, which derive `schemars::JsonSchema` for tests,
//! and is compared with its file: a key that vanishes or changes its type makes a test fail. With
//! `FLANNEL_WRITE_DOCS=1` the file is written instead.
//!
//! A crate that is tested sees other crates without their tests. Their types that its documents
//! contain have their schemas behind the feature `schema`. Those of the status are taken from its
//! file by [`definition`], and [`names`] describes names of a closed set.

#![forbid(unsafe_code)]

pub mod page;
pub mod topics;
pub mod types;

use std::{fs, path::PathBuf};

pub use schemars;
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// The place of the definitions in a schema.
const DEFINITIONS: &str = "$defs";

/// Compares the schema of a document with its file, `docs/reference/schemas/NAME.schema.json`, or
/// writes the file with `FLANNEL_WRITE_DOCS=1`. `version` is what the document has in
/// `schema_version`.
///
/// # Panics
/// The file differs.
pub fn check<T: JsonSchema>(document: &str, version: u32) {
    let text = serde_json::to_string_pretty(&schema::<T>(document, version)).expect("JSON") + "\n";
    let path = path(document);
    let written = fs::read_to_string(&path).unwrap_or_default();
    page::write_or_compare(&path, &written, &text);
}

/// The definition of a type in the schema of another document, with the definitions that it needs.
///
/// # Panics
/// The document has no such type.
pub fn definition(generator: &mut SchemaGenerator, document: &str, name: &str) -> Schema {
    let path = path(document);
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let schema: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let found = schema[DEFINITIONS]
        .get(name)
        .unwrap_or_else(|| panic!("{} has no {name}", path.display()));
    add_referenced(generator, &schema[DEFINITIONS], found);
    found.clone().try_into().expect("a definition is a schema")
}

/// Defines types whose schema is a text that is one of some names, for
/// `#[schemars(with = "TYPE")]`.
#[macro_export]
macro_rules! names {
    ($($(#[$doc:meta])* $visible:vis $type:ident: $names:expr;)+) => {$(
        $(#[$doc])*
        $visible struct $type;

        impl $crate::schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut $crate::schemars::SchemaGenerator) -> $crate::schemars::Schema {
                $crate::name($names)
            }
        }
    )+};
}

/// A text that is one of these names.
pub fn name(names: impl IntoIterator<Item = &'static str>) -> Schema {
    let names: Vec<&str> = names.into_iter().collect();
    schemars::json_schema!({ "type": "string", "enum": names })
}

fn path(document: &str) -> PathBuf {
    page::path(&format!("schemas/{document}.schema.json"))
}

/// The schema of a type, as a document under this name that has its version in front.
fn schema<T: JsonSchema>(document: &str, version: u32) -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = SchemaGenerator::new(settings).into_root_schema_for::<T>();
    let members = schema.ensure_object();
    let version = json!({
        "description": "The version of this document's schema, raised when a field goes or changes \
            its meaning.",
        "type": "integer",
        "const": version,
    });
    members.insert("title".to_owned(), document.into());
    let mut properties = Map::from_iter([("schema_version".to_owned(), version)]);
    if let Some(Value::Object(others)) = members.get_mut("properties") {
        properties.append(others);
    }
    members.insert("properties".to_owned(), properties.into());
    let mut required = vec![Value::from("schema_version")];
    if let Some(Value::Array(others)) = members.get_mut("required") {
        required.append(others);
    }
    members.insert("required".to_owned(), required.into());
    members.values_mut().for_each(join_lines);
    schema
}

/// Joins the lines of descriptions, whose breaks are those of comments.
fn join_lines(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(text)) = members.get_mut("description") {
                let paragraphs: Vec<_> = text
                    .split("\n\n")
                    .map(|lines| lines.replace('\n', " "))
                    .collect();
                *text = paragraphs.join("\n\n");
            }
            members.values_mut().for_each(join_lines);
        }
        Value::Array(items) => items.iter_mut().for_each(join_lines),
        _ => {}
    }
}

/// Adds the definitions that a schema refers to, and those that they refer to.
fn add_referenced(generator: &mut SchemaGenerator, definitions: &Value, schema: &Value) {
    match schema {
        Value::Object(members) => {
            let name = members
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|to| to.strip_prefix("#/$defs/"));
            if let Some(name) = name.filter(|name| !generator.definitions().contains_key(*name)) {
                let found = &definitions[name];
                generator
                    .definitions_mut()
                    .insert(name.to_owned(), found.clone());
                add_referenced(generator, definitions, found);
            }
            members
                .values()
                .for_each(|member| add_referenced(generator, definitions, member));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| add_referenced(generator, definitions, item)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Report;

    impl JsonSchema for Report {
        fn schema_name() -> std::borrow::Cow<'static, str> {
            "Report".into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            let peer = definition(generator, "status", "PeerStatus");
            schemars::json_schema!({
                "type": "object",
                "properties": { "peer": peer, "mode": name(["kernel", "fast"]) },
                "required": ["peer"],
            })
        }
    }

    #[test]
    fn a_document_has_its_version_in_front() {
        let schema = schema::<Report>("report", 7).to_value();
        assert_eq!(schema["title"], "report");
        let keys: Vec<&String> = schema["properties"]
            .as_object()
            .expect("keys")
            .keys()
            .collect();
        assert_eq!(keys, ["schema_version", "peer", "mode"]);
        assert_eq!(schema["properties"]["schema_version"]["const"], 7);
        assert_eq!(schema["required"], json!(["schema_version", "peer"]));
        assert_eq!(
            schema["properties"]["mode"]["enum"],
            json!(["kernel", "fast"])
        );
    }

    #[test]
    fn a_definition_brings_those_it_refers_to() {
        let schema = schema::<Report>("report", 1).to_value();
        assert_eq!(schema["properties"]["peer"]["type"], "object");
        for name in ["PeerEchoStatus", "EchoState"] {
            assert!(schema[DEFINITIONS][name].is_object(), "{name}: {schema:#}");
        }
    }

    #[test]
    fn a_description_has_no_breaks_but_those_of_paragraphs() {
        let mut schema =
            json!({ "properties": { "a": { "description": "one\ntwo\n\nthree\nfour" } } });
        join_lines(&mut schema);
        assert_eq!(
            schema["properties"]["a"]["description"],
            "one two\n\nthree four"
        );
    }
}
