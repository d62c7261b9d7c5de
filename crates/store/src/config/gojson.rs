//! JSON objects, read the way Go's `encoding/json` fills a struct.
//!
//! Keys match without regard to ASCII case. The last of several duplicates wins, also when they
//! differ in case, which is why no map type is used here. Unknown keys are left to the caller to
//! report, and `null` leaves a field unset. Values stay raw until the caller asks for a type.

use std::fmt;

use flannel_host::excerpt::excerpt;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::error::ConfigMistake;

/// The members of one JSON object, in the order written.
#[derive(Debug)]
pub(crate) struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    /// Reads an object; anything else, and trailing text, is an error.
    pub(crate) fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// The raw value that counts for `key`, `null` included.
    pub(crate) fn raw(&self, key: &str) -> Option<&RawValue> {
        self.0
            .iter()
            .rev()
            .find(|(name, _)| name.eq_ignore_ascii_case(key))
            .map(|(_, value)| &**value)
    }

    /// The value of `key` as a `T`; `None` when absent or `null`.
    pub(crate) fn value<T: DeserializeOwned>(
        &self,
        key: &str,
    ) -> Result<Option<T>, serde_json::Error> {
        self.raw(key)
            .map_or(Ok(None), |raw| serde_json::from_str(raw.get()))
    }

    /// The value of `key` as a `T`, or the error that quotes it and says what was `expected`.
    pub(crate) fn expect<T: DeserializeOwned>(
        &self,
        key: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, ConfigMistake> {
        self.value(key)
            .map_err(|_mismatch| self.bad_value(key, expected))
    }

    /// A boolean with its default.
    pub(crate) fn flag(&self, key: &'static str, default: bool) -> Result<bool, ConfigMistake> {
        Ok(self.expect(key, "true or false")?.unwrap_or(default))
    }

    /// The error for a value that cannot be used.
    pub(crate) fn bad_value(&self, key: &'static str, expected: &'static str) -> ConfigMistake {
        let value = self.raw(key).map_or("nothing", RawValue::get);
        ConfigMistake::BadValue {
            key,
            value: excerpt(value).to_string(),
            expected,
        }
    }

    /// The keys that are none of `known`.
    pub(crate) fn unknown<'a>(&'a self, known: &'a [&str]) -> impl Iterator<Item = &'a str> {
        let is_known = |name: &str| known.iter().any(|key| name.eq_ignore_ascii_case(key));
        self.0
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(move |name| !is_known(name))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = map.next_entry()? {
            fields.push(entry);
        }
        Ok(Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ignore_case_and_the_last_duplicate_wins() {
        let fields =
            Fields::parse(r#"{"a":1,"A":2,"b":null,"a":3,"B":4,"b":null}"#).expect("an object");
        assert_eq!(fields.value::<u8>("A").expect("a number"), Some(3));
        assert_eq!(fields.value::<u8>("b").expect("null"), None);
        assert_eq!(fields.unknown(&["A"]).collect::<Vec<_>>(), ["b", "B", "b"]);
    }

    #[test]
    fn only_one_object_is_read() {
        for bad in ["", "[]", "1", "{} {}", "{\"a\"}"] {
            assert!(Fields::parse(bad).is_err(), "{bad}");
        }
    }
}
