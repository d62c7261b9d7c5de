//! Doubles of what fails: it cannot be made to fail on demand.

pub mod card;
pub mod proxy;
