//! Agent.

pub mod cli;
pub mod config;
pub mod subnet;
