//! The programs, one file each, and what several of them share.

mod context;
mod direct_route;
pub(crate) mod early_guard;
pub(crate) mod find_judges;
pub(crate) mod from_pod;
pub(crate) mod from_tunnel;
pub(crate) mod from_underlay;
pub(crate) mod l3_tunnel;
pub(crate) mod probe_room;
pub(crate) mod to_pod;
pub(crate) mod to_tunnel;
pub(crate) mod to_underlay;
