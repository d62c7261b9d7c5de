//! JSON with secrets in it. Pure.

use serde::de::DeserializeOwned;

/// Reads it. The error has the place of the mistake and quotes nothing: the text may be a secret.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("line {}, column {}", error.line(), error.column()))
}
