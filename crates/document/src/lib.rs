//! The JSON documents of commands: objects, each with the version of its schema in front.
//!
//! The schemas are in docs/reference/schemas, and a unit test next to each type compares them.

use flannel_status::Status;
use serde::Serialize;

/// An object that a command prints for programs.
pub trait Document: Serialize {
    /// The name of its schema: `docs/reference/schemas/NAME.schema.json`.
    const NAME: &'static str;

    /// The version of its schema, raised when a field goes or changes its meaning.
    const SCHEMA_VERSION: u32 = 1;
}

/// The agent's socket answers it too.
impl Document for Status {
    const NAME: &'static str = Self::NAME;
    const SCHEMA_VERSION: u32 = Self::SCHEMA_VERSION;
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    schema_version: u32,
    #[serde(flatten)]
    document: &'a T,
}

/// The document on one line, without an end of line.
pub fn line<T: Document>(document: &T) -> String {
    serde_json::to_string(&versioned(document)).expect("documents are objects with string keys")
}

/// The document indented, with its final end of line.
pub fn indented<T: Document>(document: &T) -> String {
    serde_json::to_string_pretty(&versioned(document))
        .expect("documents are objects with string keys")
        + "\n"
}

const fn versioned<T: Document>(document: &T) -> Versioned<'_, T> {
    Versioned {
        schema_version: T::SCHEMA_VERSION,
        document,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Second {
        b: Option<u8>,
        a: f64,
    }

    impl Document for Second {
        const NAME: &'static str = "second";
        const SCHEMA_VERSION: u32 = 2;
    }

    #[test]
    fn the_version_is_the_first_key() {
        let document = Second { b: None, a: 0.5 };
        assert_eq!(line(&document), r#"{"schema_version":2,"b":null,"a":0.5}"#);
        assert_eq!(
            indented(&document),
            "{\n  \"schema_version\": 2,\n  \"b\": null,\n  \"a\": 0.5\n}\n"
        );
    }
}
