//! What an operator can see of a running agent: its status and the socket that answers with it.

pub mod log;
pub mod socket;
pub mod status;
