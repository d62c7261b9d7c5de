//! What an operator, and the machine that runs us, can see of a running agent: log, status and its socket, health checks, metrics,
//! the flows of mode `fast`, and the word to the service manager.

mod connections;
pub mod flows;
pub mod health;
pub mod http;
pub mod log;
pub mod metrics;
pub mod notify;
pub mod pulse;
pub mod socket;
pub mod status;
