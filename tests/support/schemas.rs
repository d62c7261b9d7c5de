//! The output of commands, validated with the schemas in docs/reference/schemas.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Validates a document with the schema of this name. A key that the schema does not describe is an
/// error here; for programs that read documents of later versions it is none.
pub(crate) fn validate(schema: &str, document: &Value) -> Result<()> {
    let file = format!("{schema}.schema.json");
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs/reference/schemas")
        .join(&file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut schema: Value = serde_json::from_str(&text).with_context(|| file.clone())?;
    refuse_other_keys(&mut schema);
    let validator = jsonschema::draft202012::new(&schema).with_context(|| file.clone())?;
    let errors: Vec<_> = validator
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    ensure!(
        errors.is_empty(),
        "{file}:\n{}\nin {document:#}",
        errors.join("\n")
    );
    let first = document
        .as_object()
        .and_then(|members| members.keys().next());
    ensure!(
        first.is_some_and(|key| key == "schema_version"),
        "{file}: the first key is {first:?}"
    );
    Ok(())
}

/// Closes the objects of a schema, but for those whose keys are data.
fn refuse_other_keys(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.contains_key("properties") {
                members
                    .entry("additionalProperties")
                    .or_insert(Value::Bool(false));
            }
            members.values_mut().for_each(refuse_other_keys);
        }
        Value::Array(items) => items.iter_mut().for_each(refuse_other_keys),
        _ => {}
    }
}
