//! The interface of agent and programs: the layout of map entries, and the numbers of programs,
//! reasons and modes.

pub mod ecmp;
pub mod entry_state;
pub mod families;
pub mod fast;
pub mod guard;
pub mod kernel;
pub mod kernel_drop;
pub mod maps;
pub mod mode;
pub mod monitor;
pub mod node;
pub mod peer;
#[cfg(feature = "user")]
mod pod;
pub mod program;
pub mod reason;
pub mod reception;
pub mod stats;
pub mod tick;
pub mod traffic;
