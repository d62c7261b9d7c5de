//! The JSON schema of the document, for programs that read it: docs/reference/status.schema.json.
//! Written by these tests with `FLANNEL_WRITE_DOCS=1`.

use std::{env, fs};

use serde_json::Value;

use crate::Status;

/// The place of the schema, from this crate.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/status.schema.json");

/// As `flannel_host` writes it.
#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "a description of another crate's type")]
pub(crate) struct ChangedSysctl {
    /// Its name, such as `net.netfilter.nf_conntrack_tcp_be_liberal`.
    name: String,
    /// The last value that was not the agent's.
    before: u32,
    /// The value the agent set.
    set: u32,
}

#[test]
fn the_schema_is_that_of_the_types() {
    let schema = schemars::SchemaGenerator::new(schemars::generate::SchemaSettings::draft2020_12().for_serialize())
        .into_root_schema_for::<Status>();
    let text = serde_json::to_string_pretty(&schema).expect("JSON") + "\n";
    if env::var_os("FLANNEL_WRITE_DOCS").is_some() {
        fs::write(FILE, &text).expect("written");
    }
    let written = fs::read_to_string(FILE).unwrap_or_default();
    assert!(written == text, "docs/reference/status.schema.json is not what FLANNEL_WRITE_DOCS=1 makes of it");
}

#[test]
fn a_sysctl_is_described_as_it_is_written() {
    let changed = serde_json::from_str::<flannel_host::sysctl_record::ChangedSysctl>(
        r#"{"name":"net.netfilter.nf_conntrack_tcp_be_liberal","before":0,"set":1}"#,
    );
    let written = serde_json::to_value(changed.expect("a sysctl")).expect("JSON");
    let schema = serde_json::to_value(schemars::schema_for!(ChangedSysctl)).expect("JSON");
    let names = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&written), names(&schema["properties"]));
}
