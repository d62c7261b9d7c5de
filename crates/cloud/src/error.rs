//! Errors of the cloud's API and metadata.

use std::{net::IpAddr, time::Duration};

use flannel_host::file::FileError;

/// An HTTP request without a usable answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The request cannot be built: the address is malformed.
    #[error("the request cannot be made: {0}")]
    Request(#[from] http::Error),
    /// The connection failed.
    #[error("no connection: {0}")]
    Connection(#[from] hyper_util::client::legacy::Error),
    /// The answer broke off, is too large or no text.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
}

/// The words of one cloud in its errors.
#[derive(Debug, PartialEq, Eq)]
pub struct CloudWords {
    /// The host that has its metadata service.
    pub(super) instance: &'static str,
    /// The remedy for missing credentials.
    pub(super) keys: &'static str,
    /// The list of permissions, with its owner.
    pub(super) policy: &'static str,
    /// The remedy where a table is full.
    pub(super) room: &'static str,
}

/// A route of the cloud that is not as it should be, and the reason.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// The roots of TLS cannot be read.
    #[error("cannot read the certificates of this host: {0}")]
    Certificates(std::io::Error),
    /// The metadata service does not answer.
    #[error("the metadata service at {base} does not answer ({error}): this host has to be \
        {}", .words.instance)]
    NoMetadata {
        /// Those of the cloud.
        words: &'static CloudWords,
        /// Its address.
        base: String,
        /// The cause.
        #[source]
        error: HttpError,
    },
    /// It answers with an error.
    #[error("the metadata service at {base} refuses {path} with status {status}")]
    MetadataRefused {
        /// Its address.
        base: String,
        /// The item that was asked for.
        path: String,
        /// The HTTP status.
        status: u16,
    },
    /// An instance without a role, and no keys in the environment.
    #[error("no credentials: {}", .0.keys)]
    NoCredentials(&'static CloudWords),
    /// The role's credentials cannot be read.
    #[error("the credentials of {owner} cannot be read from the metadata: {problem}")]
    RoleCredentials {
        /// The role or account.
        owner: String,
        /// The mistake in them. It has no part of the credentials.
        problem: String,
    },
    /// The external interface is none of the instance's.
    #[error(
        "no interface of this instance has the address {0} in its metadata: choose another by \
         --iface"
    )]
    NoInterface(IpAddr),
    /// The request was not answered.
    #[error("{action}: {error}")]
    Http {
        /// The request.
        action: &'static str,
        /// The cause.
        #[source]
        error: HttpError,
    },
    /// The request cannot be signed.
    #[error("{action} cannot be signed: {problem}")]
    Unsigned {
        /// The request.
        action: &'static str,
        /// The cause.
        problem: String,
    },
    /// The answer is not understood.
    #[error("the answer to {action} is not understood: {problem}")]
    BadAnswer {
        /// The request.
        action: &'static str,
        /// The mistake in it.
        problem: String,
    },
    /// A permission is missing.
    #[error("{action} is not allowed: {} needs {permission} ({code})", .words.policy)]
    NotAllowed {
        /// Those of the cloud.
        words: &'static CloudWords,
        /// The request.
        action: &'static str,
        /// The permission.
        permission: String,
        /// The code of the API.
        code: String,
    },
    /// The credentials were refused.
    #[error(
        "{action}: the credentials were refused ({code}): they are wrong or expired, or the clock \
         of this host is"
    )]
    BadCredentials {
        /// The request.
        action: &'static str,
        /// The code of the API.
        code: String,
    },
    /// The route table is full.
    #[error(
        "route table {table} is full with {routes} routes ({code}): {}, remove routes, or use a \
         backend with tunnels, \
         such as vxlan",
        .words.room
    )]
    TableFull {
        /// Those of the cloud.
        words: &'static CloudWords,
        /// The table.
        table: String,
        /// The number of its routes.
        routes: usize,
        /// The code of the API.
        code: String,
    },
    /// Too many requests, of this node or of others in the account.
    #[error("{action}: too many requests ({code}); tried again later")]
    Throttled {
        /// The request.
        action: &'static str,
        /// The code of the API.
        code: String,
    },
    /// Refused for another reason.
    #[error("{action} was refused: {code}: {message}")]
    Refused {
        /// The request.
        action: &'static str,
        /// The code of the API.
        code: String,
        /// Its message, cut.
        message: String,
    },
    /// The cloud drops packets of pods.
    #[error(
        "the instance {0} may not forward packets (canIpForward is false): create it with \
         --can-ip-forward, or set \
         canIpForward by `gcloud compute instances update-from-file`"
    )]
    NoForwarding(String),
    /// The cloud did not finish a change.
    #[error("{action} was not finished within {seconds} s")]
    Unfinished {
        /// The request.
        action: &'static str,
        /// The time.
        seconds: u32,
    },
    /// The subnet and the VPC have no route table to change.
    #[error(
        "the subnet {subnet} has no route table, and the VPC {vpc} no main one: name one by \
         Backend.RouteTableID"
    )]
    NoTable {
        /// The VPC's subnet of this node.
        subnet: String,
        /// The VPC.
        vpc: String,
    },
    /// The subnet and the VPC have no route table to change, and the backend has no option that
    /// names one.
    #[error("the VPC {vpc} has no route table for the subnet {subnet}, and no main one")]
    NoTableOf {
        /// The VPC's subnet of this node.
        subnet: String,
        /// The VPC.
        vpc: String,
    },
    /// The record cannot be read or written.
    #[error(transparent)]
    Record(#[from] FileError),
}

impl CloudError {
    /// The code of the API, if it answered with an error.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::NotAllowed { code, .. }
            | Self::BadCredentials { code, .. }
            | Self::TableFull { code, .. }
            | Self::Throttled { code, .. }
            | Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// True if fewer requests are the remedy.
    pub(super) const fn is_throttled(&self) -> bool {
        matches!(self, Self::Throttled { .. })
    }
}
