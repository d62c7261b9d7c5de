//! One finding of `check`, and its level.

use serde::Serialize;

use super::code::{FindingCode, HostCode};

/// The level of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Something is lost: speed, a mode, a convenience.
    Warn,
    /// Pods will not reach each other.
    Fail,
}

/// One finding. The topics are an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// The topic, such as `programs` or `mtu`.
    #[cfg_attr(test, schemars(with = "super::topics::Topic"))]
    pub topic: &'static str,
    /// The kind; absent (`null`) where all is as it should be.
    pub code: Option<FindingCode>,
    /// The level.
    pub level: Level,
    /// The finding in words.
    pub text: String,
    /// The remedy; absent where there is nothing to do.
    pub remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(topic: &'static str, text: impl Into<String>) -> Self {
        Self {
            topic,
            code: None,
            level: Level::Ok,
            text: text.into(),
            remedy: None,
        }
    }

    pub(super) fn warn(code: HostCode, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::not_well(code, Level::Warn, text.into(), remedy.into())
    }

    pub(super) fn fail(code: HostCode, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::not_well(code, Level::Fail, text.into(), remedy.into())
    }

    pub(super) fn not_well(code: HostCode, level: Level, text: String, remedy: String) -> Self {
        Self {
            topic: code.topic(),
            code: Some(FindingCode::Host(code)),
            level,
            text,
            remedy: Some(remedy),
        }
    }
}
