//! Messages of package `grpc.health.v1` ([gRPC health
//! checking](https://github.com/grpc/grpc/blob/v1.70.0/doc/health-checking.md)).

use prost::{Enumeration, Message};

/// The request of `Check`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct HealthCheckRequest {
    /// The service in question; empty for the whole server.
    #[prost(string, tag = "1")]
    pub(crate) service: String,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub(crate) status: i32,
}

/// The state of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum ServingStatus {
    /// Not known.
    Unknown = 0,
    /// It answers.
    Serving = 1,
}
