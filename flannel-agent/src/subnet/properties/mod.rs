//! What must hold whatever a store contains. The properties of a store's own parts are beside those parts.

mod leases;
pub(super) mod noise;
