//! Errors of requests to the API server.

use std::time::Duration;

use flannel_host::error_chain::chain;
use kube::{client::UpgradeConnectionError, core::request};

/// A request without a usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The request could not be built.
    #[error("{what}: cannot build the request; check --namespace and --selector")]
    Request {
        /// The purpose of the request.
        what: String,
        /// The reason.
        source: request::Error,
    },
    /// The server refuses it.
    #[error("{what}: {}", refusal(*code, message))]
    Refused {
        /// The purpose of the request.
        what: String,
        /// The HTTP status.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// The server cannot be reached, or answers in no way that is known.
    #[error("{what}: the API server {server} cannot be used: {}", words(error))]
    Unreachable {
        /// The purpose of the request.
        what: String,
        /// The host of the server.
        server: String,
        /// The reason; its text is part of this error's.
        error: Box<kube::Error>,
    },
    /// No answer in time.
    #[error("{what}: no answer of the API server within {} s", limit.as_secs())]
    Deadline {
        /// The purpose of the request.
        what: String,
        /// The time limit.
        limit: Duration,
    },
    /// The answer cannot be read.
    #[error("{what}: the answer cannot be read")]
    Answer {
        /// The purpose of the request.
        what: String,
        /// The reason.
        source: serde_json::Error,
    },
}

impl ClusterError {
    pub(super) fn new(what: &str, server: &str, error: kube::Error) -> Self {
        let what = what.to_owned();
        match error {
            kube::Error::Api(status) => Self::Refused {
                what,
                code: status.code,
                message: status.message,
            },
            error => Self::Unreachable {
                what,
                server: server.to_owned(),
                error: Box::new(error),
            },
        }
    }

    /// Returns the HTTP status of the refusal, if the server refused the request.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Request { .. }
            | Self::Unreachable { .. }
            | Self::Deadline { .. }
            | Self::Answer { .. } => None,
        }
    }
}

const FORBIDDEN: u16 = 403;
const RIGHTS: &str = "; the guide on clusters lists the rights that are needed";

/// The server's message, and the remedy where rights are missing.
fn refusal(code: u16, message: &str) -> String {
    if code == FORBIDDEN {
        format!("{message}{RIGHTS}")
    } else {
        message.to_owned()
    }
}

/// The client's error in one line.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => refusal(status.code, &status.message),
        kube::Error::Service(error) => chain(error.as_ref()),
        kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(status)) => {
            refusal(status.as_u16(), &format!("the API server answers {status}"))
        }
        other => chain(other),
    }
}

/// A command in a pod that has no result.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The API server does not run commands in this pod.
    #[error("no command can be run in pod {pod}: {}", words(error))]
    Refused {
        /// The pod.
        pod: String,
        /// The reason; its text is part of this error's.
        error: Box<kube::Error>,
    },
    /// The container runtime did not start the command.
    #[error("the command did not start in pod {pod}: {message}")]
    NotStarted {
        /// The pod.
        pod: String,
        /// The runtime's message.
        message: String,
    },
    /// It did not end in time.
    #[error("the command in pod {pod} took longer than {} s", limit.as_secs())]
    Deadline {
        /// The pod.
        pod: String,
        /// The time limit.
        limit: Duration,
    },
    /// No line of its output came in time.
    #[error("the command in pod {pod} wrote no line for {} s", limit.as_secs())]
    Silent {
        /// The pod.
        pod: String,
        /// The time limit.
        limit: Duration,
    },
    /// The connection broke.
    #[error("the connection to pod {pod} broke before the command ended")]
    Broken {
        /// The pod.
        pod: String,
    },
    /// Its output is larger than a limit.
    #[error("the command in pod {pod} wrote more than {limit} bytes")]
    TooLong {
        /// The pod.
        pod: String,
        /// The limit in bytes.
        limit: u64,
    },
}

impl ExecError {
    /// Returns true if the container lacks the program.
    pub fn lacks_program(&self) -> bool {
        let Self::NotStarted { message, .. } = self else {
            return false;
        };
        ["executable file not found", "no such file or directory"]
            .iter()
            .any(|known| message.contains(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_remedy_and_each_cause_comes_once() {
        let refused = |code| {
            let message = "pods is forbidden".to_owned();
            ClusterError::Refused {
                what: "listing".to_owned(),
                code,
                message,
            }
            .to_string()
        };
        assert!(refused(403).ends_with(RIGHTS), "{}", refused(403));
        assert_eq!(refused(404), "listing: pods is forbidden");
        let cause = kube::Error::Service(std::io::Error::other("refused").into());
        let unreachable = ClusterError::new("listing", "192.0.2.1", cause);
        assert_eq!(
            chain(&unreachable),
            "listing: the API server 192.0.2.1 cannot be used: refused"
        );
        let switch = kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(
            http::StatusCode::FORBIDDEN,
        ));
        let exec = ExecError::Refused {
            pod: "p".to_owned(),
            error: Box::new(switch),
        };
        assert!(
            chain(&exec).contains("answers 403 Forbidden; the guide"),
            "{}",
            chain(&exec)
        );
    }

    #[test]
    fn runtimes_say_that_a_program_is_missing() {
        let failed = |message: &str| ExecError::NotStarted {
            pod: "p".to_owned(),
            message: message.to_owned(),
        };
        for message in [
            r#"OCI runtime exec failed: exec: "flannel-agent": executable file not found in $PATH: unknown"#,
            "error finding executable \"flannel-agent\" in PATH: no such file or directory",
        ] {
            assert!(failed(message).lacks_program(), "{message}");
        }
        assert!(!failed("container is in CONTAINER_EXITED state").lacks_program());
        assert!(
            !ExecError::Broken {
                pod: "p".to_owned()
            }
            .lacks_program()
        );
    }
}
