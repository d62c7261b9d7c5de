//! The ground floor of the agent: its host's clock, files, kernel types, sysctls and signals,
//! address families, the forms of errors, durations and log lines, and maps without spare room.
//! Nothing here depends on the purpose of the agent.

#![forbid(unsafe_code)]

pub mod clock;
pub mod count;
pub mod duration;
pub mod error_chain;
pub mod excerpt;
pub mod family;
pub mod file;
pub mod kernel_types;
pub mod lock_holder;
pub mod log_limit;
pub mod networks;
pub mod packing;
pub mod port_holder;
pub mod secret;
pub mod signals;
pub mod sysctl;
pub mod sysctl_record;
pub mod unix_socket;
pub mod wireguard_key;
pub mod words;
