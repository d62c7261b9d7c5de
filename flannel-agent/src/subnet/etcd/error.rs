//! What etcd can answer instead.

use std::error::Error as _;

use etcd_client::Error;
use tonic::Code;

use super::{options::is_tls, tls::TlsError};

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No endpoint answered, or none could. They are tried again.
    #[error("etcd is not reachable ({}): {what}: {problem}; check {}", endpoints.join(", "), to_check(endpoints))]
    Unreachable {
        /// All endpoints.
        endpoints: Vec<String>,
        /// The request.
        what: &'static str,
        /// What went wrong at the last endpoint.
        problem: Problem,
    },
    /// An endpoint answered, and refused.
    #[error("etcd at {endpoint} refuses: {what}: {problem}")]
    Refused {
        /// The endpoint.
        endpoint: String,
        /// The request.
        what: &'static str,
        /// Its answer.
        problem: Problem,
    },
    /// There is no network configuration.
    #[error("etcd has no key {key}; write the network configuration there, with the v3 API")]
    NoConfig {
        /// The key.
        key: String,
    },
    /// The network configuration is not text.
    #[error("etcd's {key} is not UTF-8 text; write the network configuration there")]
    BinaryConfig {
        /// The key.
        key: String,
    },
}

/// What went wrong with one attempt.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Deadline(std::time::Duration),
    /// The client's error.
    #[error("{}", brief(.0))]
    Client(Box<Error>),
    /// TLS lacks a file.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server ended the watch.
    #[error("the watch was cancelled: {0}")]
    Cancelled(String),
    /// The connection ended without an error.
    #[error("the watch ended")]
    Ended,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Client(Box::new(error))
    }
}

impl Problem {
    /// Whether another endpoint, or the same one later, may do better: everything but a well-considered no.
    pub(super) fn is_unreachable(&self) -> bool {
        !matches!(
            self.code(),
            Some(
                Code::InvalidArgument
                    | Code::NotFound
                    | Code::AlreadyExists
                    | Code::PermissionDenied
                    | Code::FailedPrecondition
                    | Code::OutOfRange
                    | Code::Unauthenticated
            )
        )
    }

    /// The revision asked for is compacted away.
    pub(super) fn is_compacted(&self) -> bool {
        self.code() == Some(Code::OutOfRange)
    }

    fn code(&self) -> Option<Code> {
        match self {
            Self::Client(error) => match &**error {
                Error::GRpcStatus(status) => Some(status.code()),
                _ => None,
            },
            _ => None,
        }
    }
}

impl EtcdError {
    /// The revision asked for is compacted away.
    pub(super) fn is_compacted(&self) -> bool {
        matches!(self, Self::Refused { problem, .. } if problem.is_compacted())
    }
}

/// By TLS 1.3 a server that refuses our certificate says no more than that the connection is closed.
fn to_check(endpoints: &[String]) -> &'static str {
    if endpoints.iter().any(|endpoint| is_tls(endpoint)) {
        "--etcd-endpoints, the servers, and the certificates of both sides"
    } else {
        "--etcd-endpoints and the servers"
    }
}

/// The innermost cause: the layers above it repeat each other.
pub(super) fn brief(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = match error {
        Error::GRpcStatus(status) if status.source().is_none() => return status.message().to_owned(),
        Error::GRpcStatus(status) => status,
        Error::TransportError(transport) => transport,
        _ => error,
    };
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
