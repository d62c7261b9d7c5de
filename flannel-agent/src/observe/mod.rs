//! Observability of a running agent, for the operator and for the system that runs it: log, status
//! and its socket, health checks, metrics, the flows of mode `fast`, and notifications to the
//! service manager.

mod connections;
pub mod flows;
pub mod health;
pub mod http;
mod klog;
pub mod listener_state;
pub mod log;
pub mod metrics;
pub mod notify;
pub mod pod_traffic;
pub mod pulse;
pub mod shared;
pub mod socket;
