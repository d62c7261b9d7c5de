//! The step about what is behind a route.

use flannel_backend_api::CarrierState;

use super::{
    kernel::REPAIR,
    step::{Step, StepState},
};
use crate::snapshot::Snapshot;

/// Returns the step; none where only a route carries the packet.
pub(super) fn step(facts: &Snapshot) -> Option<Step> {
    let carrier = facts.carrier.as_ref()?;
    let text = carrier.text.clone();
    let (state, text) = match carrier.state {
        CarrierState::Carries => (StepState::Ok, text),
        CarrierState::Doubtful => (StepState::Warn, text),
        CarrierState::Unknown => (StepState::Unknown, text),
        CarrierState::Lost => (StepState::Fail, text),
        CarrierState::Repairable => (StepState::Fail, format!("{text}; {REPAIR}")),
    };
    Some(Step::new(carrier.part, state, text))
}
