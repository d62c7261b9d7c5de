//! What tests of this crate and of commands have in common. Only for tests.

pub mod api_double;
pub mod nodes;
