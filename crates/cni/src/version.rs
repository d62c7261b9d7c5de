//! Versions of the [CNI specification](https://www.cni.dev/docs/spec/). The delegate speaks the
//! configuration's version, and what it prints is passed on, so every version it may speak is fine
//! with us.

use serde_json::{Value, json};

use crate::error::Error;

/// In their order; the same as stock flannel's.
pub(crate) const SUPPORTED: [&str; 7] =
    ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", NEWEST];

const NEWEST: &str = "1.1.0";

/// Of configurations that name none.
const OLDEST: &str = SUPPORTED[0];

/// A version that we speak; later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(usize);

impl Version {
    /// The first one with CHECK, and with a `prevResult` on DEL.
    pub(crate) const WITH_CHECK: Self = Self(4);
    /// The last one.
    pub(crate) const NEWEST: Self = Self(SUPPORTED.len() - 1);
    /// The first one with GC and STATUS.
    pub(crate) const WITH_GC: Self = Self(6);

    /// The version a configuration names.
    pub(crate) fn of(cni_version: &str) -> Result<Self, Error> {
        let wanted = if cni_version.is_empty() {
            OLDEST
        } else {
            cni_version
        };
        let place = SUPPORTED.iter().position(|known| *known == wanted);
        place.map(Self).ok_or_else(|| Error::UnknownVersion {
            wanted: wanted.to_owned(),
            supported: &SUPPORTED,
        })
    }

    /// Refuses a verb that came `since`.
    pub(crate) fn require(self, since: Self, verb: &'static str) -> Result<(), Error> {
        let wanted = SUPPORTED[self.0].to_owned();
        if self < since {
            Err(Error::VerbNotInVersion { wanted, verb })
        } else {
            Ok(())
        }
    }
}

/// In which version to answer: the input's, or the newest if it has none that we speak. Whatever
/// the input is.
pub(crate) fn of_answer(input: &[u8]) -> &'static str {
    let input: Option<Value> = serde_json::from_slice(input).ok();
    let wanted = input
        .as_ref()
        .and_then(|input| input["cniVersion"].as_str());
    SUPPORTED
        .into_iter()
        .find(|known| Some(*known) == wanted)
        .unwrap_or(NEWEST)
}

/// The answer to VERSION.
pub(crate) fn answer(cni_version: &str) -> Vec<u8> {
    format!(
        "{}\n",
        json!({ "cniVersion": cni_version, "supportedVersions": SUPPORTED })
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_come_with_their_versions() {
        for (version, check, gc) in [
            ("", false, false),
            ("0.3.1", false, false),
            ("0.4.0", true, false),
            ("1.0.0", true, false),
            ("1.1.0", true, true),
        ] {
            let version = Version::of(version).expect("a known version");
            assert_eq!(
                version.require(Version::WITH_CHECK, "CHECK").is_ok(),
                check,
                "{version:?}"
            );
            assert_eq!(
                version.require(Version::WITH_GC, "GC").is_ok(),
                gc,
                "{version:?}"
            );
        }
        assert!(Version::of("1.2.0").is_err() && Version::of("1.0").is_err());
    }

    #[test]
    fn the_answer_is_in_the_inputs_version_if_we_speak_it() {
        for (input, expected) in [
            (r#"{"cniVersion":"0.4.0"}"#, "0.4.0"),
            (r#"{"cniVersion":"9.0.0"}"#, "1.1.0"),
            (r#"{"cniVersion":1}"#, "1.1.0"),
            ("[]", "1.1.0"),
            ("", "1.1.0"),
        ] {
            assert_eq!(of_answer(input.as_bytes()), expected, "{input}");
        }
    }
}
