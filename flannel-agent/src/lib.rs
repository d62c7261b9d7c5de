//! Agent.

pub mod config;
