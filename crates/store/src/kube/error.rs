//! Errors of requests to Kubernetes.

use std::{error::Error, io, path::PathBuf, time::Duration};

use flannel_host::{
    excerpt::{excerpt, message_excerpt},
    family::Family,
};
use kube::core::Status;

use crate::{BadPodCidr, kube::connection::transport::TooLarge};

/// A failed request, or a Node that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    /// A client for the server cannot be set up.
    #[error(
        "cannot connect to {api}: {problem}; check --kubeconfig-file and --kube-api-url, or the \
         pod's service account"
    )]
    Setup {
        /// The server, in words.
        api: String,
        /// The problem with the setup.
        problem: String,
    },
    /// The server did not answer, or could not. It is asked again.
    #[error("{api} is not reachable: {what}: {problem}")]
    Unreachable {
        /// The server, in words.
        api: String,
        /// The request.
        what: &'static str,
        /// The failure.
        problem: Problem,
    },
    /// The server answered, and refused.
    #[error("{api} refuses: {what}: {problem}{}", hint(problem))]
    Refused {
        /// The server, in words.
        api: String,
        /// The request.
        what: &'static str,
        /// Its answer.
        problem: Problem,
    },
    /// The pod that should identify our Node is not bound to one.
    #[error("pod {namespace}/{name} is on no node yet; set NODE_NAME if this is not a pod")]
    PodWithoutNode {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Our Node has no subnet yet.
    #[error(
        "node {node} has no {family} pod CIDR yet; check that the controller manager runs with \
         --allocate-node-cidrs, \
         or set spec.podCIDR of the node"
    )]
    NoPodCidr {
        /// The Node.
        node: String,
        /// The family without one.
        family: Family,
    },
    /// Our Node's subnets cannot be read.
    #[error("node {node} cannot be served: {problem}")]
    BadPodCidr {
        /// The Node.
        node: String,
        /// The fault of its pod CIDRs.
        problem: BadPodCidr,
    },
    /// The network configuration cannot be read.
    #[error("cannot read the network configuration {}: {source}; mount it there, or set \
        --net-config-path", path.display())]
    NetConfig {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The failure of one attempt.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    /// The server's own words.
    #[error("{} ({})", message_excerpt(&.0.message), .0.code)]
    Status(Box<Status>),
    /// The client's error.
    #[error("{}", innermost(.0))]
    Client(Box<kube::Error>),
    /// The answer makes no sense.
    #[error("its answer cannot be read: {}", message_excerpt(.0))]
    Answer(serde_json::Error),
    /// The answer, or a line of the watch, is larger than any there is.
    #[error("its answer is not read: {0}; look what stands in the API server's place")]
    TooLarge(TooLarge),
    /// A message on the watch is not a change.
    #[error("what it said on the watch cannot be read")]
    NoChange,
    /// The request could not be made.
    #[error("{0}")]
    Request(kube::core::request::Error),
    /// The watch went silent.
    #[error("nothing was heard for {0:?}")]
    Silent(Duration),
    /// The server is at an older point of its history than it was.
    #[error(
        "its history went back from version {} to {}; it was restored from a backup",
        excerpt(from),
        excerpt(to)
    )]
    WentBack {
        /// The version we had seen.
        from: String,
        /// The older version it reported after that.
        to: String,
    },
}

impl From<kube::Error> for Problem {
    fn from(error: kube::Error) -> Self {
        if let Some(large) = TooLarge::cause_of(&error) {
            return Self::TooLarge(large);
        }
        match error {
            // The client decodes any object on a watch that is not a change as a status. A real
            // status has a code.
            kube::Error::Api(status) if status.code == 0 => Self::NoChange,
            kube::Error::Api(status) => Self::Status(status),
            kube::Error::SerdeError(error) => Self::Answer(error),
            error => Self::Client(Box::new(error)),
        }
    }
}

impl From<kube::core::request::Error> for Problem {
    fn from(error: kube::core::request::Error) -> Self {
        Self::Request(error)
    }
}

/// The reason of the server's answer to a list that is to have a version which it does not reach
/// within three seconds (`NewTooLargeResourceVersionError`,
/// <https://github.com/kubernetes/apiserver/blob/v0.34.1/pkg/storage/errors.go>).
const TOO_NEW: &str = "ResourceVersionTooLarge";

impl Problem {
    /// See [`KubeError::is_too_new`].
    fn is_too_new(&self) -> bool {
        let Self::Status(status) = self else {
            return false;
        };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes.into_iter().any(|cause| cause.reason == TOO_NEW)
            || status.message.contains("Too large resource version")
    }

    /// The HTTP status, when the server gave one.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(status.code),
            _ => None,
        }
    }

    /// Returns true if the server considered the request and refused it: a status 4xx other than
    /// 408, 410 and 429.
    pub(super) fn is_refusal(&self) -> bool {
        self.code()
            .is_some_and(|code| (400..500).contains(&code) && ![408, 410, 429].contains(&code))
    }

    /// Returns true if the server no longer has the changes since the requested version, as after
    /// its restart. A new listing is possible at once.
    pub(super) fn is_expired(&self) -> bool {
        match self {
            Self::Status(status) => {
                status.code == 410 || ["Expired", "Gone"].contains(&status.reason.as_str())
            }
            _ => false,
        }
    }

    /// The version asked for is compacted away, or not there yet because the server lost it, or
    /// what follows it cannot be read.
    pub(super) fn is_outdated(&self) -> bool {
        match self {
            Self::Status(status) => {
                let causes = status.details.iter().flat_map(|details| &details.causes);
                let ahead = causes
                    .into_iter()
                    .any(|cause| cause.reason == "ResourceVersionTooLarge");
                self.is_expired() || ahead
            }
            // Asked again from there, the same would come again.
            Self::WentBack { .. } | Self::Answer(_) | Self::TooLarge(_) | Self::NoChange => true,
            _ => false,
        }
    }
}

impl KubeError {
    /// Returns true if the server answered and refused.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// The object to be created is there.
    pub(super) fn exists(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { problem, .. } | Self::Refused { problem, .. }
                if problem.code() == Some(409)
        )
    }

    /// See [`Problem::is_expired`].
    pub(super) fn is_expired(&self) -> bool {
        matches!(self, Self::Unreachable { problem, .. } if problem.is_expired())
    }

    /// The server does not have the version that a list was to have, and waited for it.
    pub(super) fn is_too_new(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { problem, .. } | Self::Refused { problem, .. }
                if problem.is_too_new()
        )
    }

    /// See [`Problem::is_outdated`].
    pub(super) fn is_outdated(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { problem, .. } | Self::Refused { problem, .. }
                if problem.is_outdated()
        )
    }
}

fn hint(problem: &Problem) -> &'static str {
    match problem.code() {
        Some(401) => "; check the token or certificate",
        Some(403) => {
            "; grant nodes get, list, watch; nodes/status patch; events create; with --pod-opt-out \
             pods list, watch; for \
             names of pods in flows pods list"
        }
        _ => "",
    }
}

/// The innermost cause: the layers above it repeat each other.
fn innermost(error: &kube::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    message_excerpt(&cause)
}
