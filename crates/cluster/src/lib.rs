//! The cluster as an operator's machine sees it: Nodes, the agents' pods, and commands in pods, all
//! through the API server.
//!
//! Owns the connection by kubeconfig. Nothing here runs in the daemon, whose own client
//! (`flannel_store`) survives its credentials; this one ends with its command.

pub mod answer;
pub mod client;
pub mod compare;
pub mod error;
pub mod exec;
pub mod explain;
pub mod followed;
pub mod interrupt;
pub mod lines;
pub mod members;
pub mod progress;
pub mod records;
pub mod report;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod top;

/// Nodes that are asked at the same time.
pub const AT_ONCE: usize = 16;
