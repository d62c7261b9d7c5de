//! What the reconciler knows, as `status` shows it.

use serde::{Deserialize, Serialize};

use crate::reconcile::tracker::Failure;

/// An entry the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dirty {
    /// Which one.
    pub object: String,
    /// What the kernel said.
    pub error: String,
    /// How often in a row.
    pub attempts: u32,
}

impl Dirty {
    /// From what a tracker keeps.
    pub fn new(object: String, failure: &Failure) -> Self {
        Self { object, error: failure.error.clone(), attempts: failure.attempts }
    }
}
