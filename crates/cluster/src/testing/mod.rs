//! Doubles and fixtures for the tests of this crate and of the commands. Only for tests.

pub mod api_double;
pub mod nodes;
