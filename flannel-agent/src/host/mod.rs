//! The host below the agent: its clock, files, sysctls, signals, and the form of errors. Imports no other module of the agent
//! but `family`.

pub mod clock;
pub mod error_chain;
pub mod file;
pub mod memory;
pub(crate) mod signals;
pub(crate) mod sysctl;
pub mod sysctl_record;
