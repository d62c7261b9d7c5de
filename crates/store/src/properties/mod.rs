//! Invariants that hold whatever a store contains. The properties of a store's own parts are next
//! to those parts.

mod leases;
pub(super) mod noise;
