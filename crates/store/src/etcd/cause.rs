//! The innermost cause of a client's error.

use std::error::Error as _;

use etcd_client::Error;
use flannel_host::excerpt::message_excerpt;

/// The innermost cause: the layers above it repeat each other.
pub(super) fn brief(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = match error {
        Error::GRpcStatus(status) if status.source().is_none() => {
            return message_excerpt(&status.message());
        }
        Error::GRpcStatus(status) => status,
        Error::TransportError(transport) => transport,
        _ => error,
    };
    while let Some(source) = cause.source() {
        cause = source;
    }
    message_excerpt(&cause)
}
