//! A step of the story of a packet. Pure.

use serde::{Deserialize, Serialize};

/// The state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum StepState {
    /// As it should be.
    Ok,
    /// Worth knowing; packets pass.
    Warn,
    /// It is not known if packets pass.
    Unknown,
    /// Packets do not pass.
    Fail,
}

/// One step. The topics are an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The topic, such as `route` or `underlay`.
    pub topic: &'static str,
    /// The state.
    pub state: StepState,
    /// The finding, and the remedy where it is not as it should be.
    pub text: String,
}

impl Step {
    pub(super) fn new(topic: &'static str, state: StepState, text: impl Into<String>) -> Self {
        Self {
            topic,
            state,
            text: text.into(),
        }
    }

    pub(super) fn ok(topic: &'static str, text: impl Into<String>) -> Self {
        Self::new(topic, StepState::Ok, text)
    }

    pub(super) fn warn(topic: &'static str, text: impl Into<String>) -> Self {
        Self::new(topic, StepState::Warn, text)
    }

    pub(super) fn unknown(topic: &'static str, text: impl Into<String>) -> Self {
        Self::new(topic, StepState::Unknown, text)
    }

    pub(super) fn fail(topic: &'static str, text: impl Into<String>) -> Self {
        Self::new(topic, StepState::Fail, text)
    }
}
