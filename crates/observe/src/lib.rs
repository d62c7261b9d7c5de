//! Observability of a running agent, for the operator and for the system that runs it: the status
//! socket, health checks, the listeners that answer them and the metrics, and notifications to the
//! service manager.

mod connections;
pub mod health;
pub mod http;
pub mod notify;
pub mod socket;
