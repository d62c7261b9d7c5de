//! Forms of values that several flags have.

pub mod families;
pub(crate) mod go_values;
pub(crate) mod one_of;
pub(crate) mod prefixes;
