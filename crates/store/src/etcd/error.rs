//! Errors of requests to etcd.

use etcd_client::Error;
use flannel_host::excerpt::message_excerpt;
use tonic::{Code, Status};

use super::{cause::brief, options::is_tls, tls::TlsError};

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No endpoint answered, or none could. They are tried again.
    #[error("etcd is not reachable ({}): {what}: {problem}; check \
        {}", endpoints.join(", "), to_check(endpoints))]
    Unreachable {
        /// All endpoints.
        endpoints: Vec<String>,
        /// The request.
        what: &'static str,
        /// The failure at the last endpoint.
        problem: Problem,
    },
    /// An endpoint answered, and refused.
    #[error("etcd at {endpoint} refuses: {what}: {problem}{}", remedy(problem))]
    Refused {
        /// The endpoint.
        endpoint: String,
        /// The request.
        what: &'static str,
        /// Its answer.
        problem: Problem,
    },
    /// The key of the network configuration does not exist.
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

/// The failure of one attempt.
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
    #[error("the watch was cancelled: {}", message_excerpt(.0))]
    Cancelled(String),
    /// The server ended the watch, because changes that we have not seen are compacted away.
    #[error("the watch was cancelled: {}", message_excerpt(.0))]
    Compacted(String),
    /// The connection ended without an error.
    #[error("the watch ended")]
    Ended,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Client(Box::new(error))
    }
}

/// The texts of an error with code `OutOfRange`, of which there are several kinds: etcd's for a
/// compacted revision (`ErrGRPCCompacted` in api/v3rpc/rpctypes/error.go,
/// <https://github.com/etcd-io/etcd/blob/v3.5.16/api/v3rpc/rpctypes/error.go>), and tonic's for an
/// answer above the limit (`decode_chunk` in tonic/src/codec/decode.rs,
/// <https://github.com/hyperium/tonic/blob/v0.14.2/tonic/src/codec/decode.rs>).
const COMPACTED: &str = "required revision has been compacted";
const TOO_LARGE: &str = "decoded message length too large";

impl Problem {
    /// Returns true if another endpoint, or the same one later, may succeed: for every failure but
    /// a deliberate refusal.
    pub(super) fn is_unreachable(&self) -> bool {
        if self.code() == Some(Code::ResourceExhausted) {
            // What the transport calls so is a connection that is not served.
            return !self.message().starts_with("etcdserver: ");
        }
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
        self.is_out_of_range(COMPACTED) || matches!(self, Self::Compacted(_))
    }

    /// The answer is larger than we read.
    pub(super) fn is_too_large(&self) -> bool {
        self.is_out_of_range(TOO_LARGE)
    }

    fn is_out_of_range(&self, text: &str) -> bool {
        self.code() == Some(Code::OutOfRange) && self.message().contains(text)
    }

    fn code(&self) -> Option<Code> {
        self.status().map(Status::code)
    }

    fn message(&self) -> &str {
        self.status().map_or("", Status::message)
    }

    fn status(&self) -> Option<&Status> {
        match self {
            Self::Client(error) => match &**error {
                Error::GRpcStatus(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }
}

impl EtcdError {
    /// An endpoint answered, and said no.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// The revision asked for is compacted away.
    pub(super) fn is_compacted(&self) -> bool {
        self.problem().is_some_and(Problem::is_compacted)
    }

    /// The answer is larger than we read.
    pub(super) fn is_too_large(&self) -> bool {
        self.problem().is_some_and(Problem::is_too_large)
    }

    fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Unreachable { problem, .. } | Self::Refused { problem, .. } => Some(problem),
            Self::NoConfig { .. } | Self::BinaryConfig { .. } => None,
        }
    }
}

/// Returns the remedy for a refusal, to append to a message; empty without a single remedy.
fn remedy(problem: &Problem) -> &'static str {
    let message = problem.message();
    match problem.code() {
        Some(Code::ResourceExhausted) if message.contains("space exceeded") => {
            "; etcd is out of space: compact its history, defragment it and disarm the alarm \
             (etcdctl compact, defrag, \
             alarm disarm), or raise its --quota-backend-bytes"
        }
        Some(Code::ResourceExhausted) => "; etcd is overloaded, and asked again",
        Some(Code::PermissionDenied) => {
            "; grant the user of --etcd-username read and write below --etcd-prefix"
        }
        Some(Code::Unauthenticated) => "; check --etcd-username and its password",
        Some(Code::InvalidArgument) if message.contains("authentication failed") => {
            "; check --etcd-username and its password"
        }
        _ => "",
    }
}

/// By TLS 1.3 a server that refuses our certificate says no more than that the connection is
/// closed.
fn to_check(endpoints: &[String]) -> &'static str {
    if endpoints.iter().any(|endpoint| is_tls(endpoint)) {
        "--etcd-endpoints, the servers, and the certificates of both sides"
    } else {
        "--etcd-endpoints and the servers"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(code: Code, message: &str) -> Problem {
        Error::GRpcStatus(Status::new(code, message)).into()
    }

    #[test]
    fn compacted_and_too_large_are_distinguished_by_their_meaning() {
        let compacted = problem(
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted",
        );
        let large = "Error, decoded message length too large: found 5600412 bytes, the limit is: \
            4194304 bytes";
        let large = problem(Code::OutOfRange, large);
        let future = problem(
            Code::OutOfRange,
            "etcdserver: mvcc: required revision is a future revision",
        );
        assert_eq!(
            [&compacted, &large, &future].map(Problem::is_compacted),
            [true, false, false]
        );
        assert_eq!(
            [&compacted, &large, &future].map(Problem::is_too_large),
            [false, true, false]
        );
        assert!(
            [compacted, large, future]
                .iter()
                .all(|problem| !problem.is_unreachable())
        );
    }

    #[test]
    fn a_server_that_answered_is_not_called_unreachable() {
        for (code, message, remedy) in [
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                "; etcd is out of space: compact",
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                "; etcd is overloaded",
            ),
            (
                Code::PermissionDenied,
                "etcdserver: permission denied",
                "; grant the user of --etcd-username",
            ),
            (
                Code::Unauthenticated,
                "etcdserver: invalid auth token",
                "; check --etcd-username",
            ),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                "; check --etcd",
            ),
        ] {
            let problem = problem(code, message);
            assert!(!problem.is_unreachable(), "{problem}");
            let error = EtcdError::Refused {
                endpoint: "http://e".to_owned(),
                what: "asking",
                problem,
            };
            assert!(
                error.to_string().starts_with(&format!(
                    "etcd at http://e refuses: asking: {message}{remedy}"
                )),
                "{error}"
            );
        }
        for (code, message) in [
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::ResourceExhausted, "h2 protocol error: http2 error"),
        ] {
            assert!(problem(code, message).is_unreachable(), "{message}");
        }
    }
}
