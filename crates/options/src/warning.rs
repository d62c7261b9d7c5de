//! Options without the effect they ask for.

use std::fmt;

/// An option without the effect it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionWarning {
    /// Only one of user name and password is set; flannel authenticates with both or not at all.
    HalfCredentials,
    /// Only one of client certificate and key is named; flannel uses both or neither.
    HalfClientCertificate,
    /// Files for TLS are set, but there are `http://` endpoints.
    PlainEndpoints,
    /// Destinations are exempt from masquerade, but masquerade is off.
    NothingToExempt,
}

impl fmt::Display for OptionWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HalfCredentials => {
                "only one of --etcd-username and --etcd-password is set; connecting to etcd \
                 without authentication"
            }
            Self::HalfClientCertificate => {
                "only one of --etcd-certfile and --etcd-keyfile is set; connecting to etcd without \
                 a client certificate"
            }
            Self::PlainEndpoints => {
                "--etcd-cafile, --etcd-certfile and --etcd-keyfile do nothing for the http:// \
                 endpoints; write https:// \
                 to use TLS"
            }
            Self::NothingToExempt => "--ip-masq-exclude does nothing without --ip-masq",
        })
    }
}
