//! Observability of a running agent, for the operator and for the system that runs it: status and
//! its socket, health checks, metrics, and notifications to the service manager.

mod connections;
pub mod health;
pub mod http;
pub mod listener_state;
pub mod metrics;
pub mod notify;
pub mod pulse;
pub mod shared;
pub mod socket;
