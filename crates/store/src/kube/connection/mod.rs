//! The connection to the API server: credentials, requests and their deadlines.

pub(super) mod client;
pub(super) mod connect;
pub(super) mod credential_plugin;
pub(super) mod requests;
pub(super) mod token;
pub(super) mod transport;
