//! Errors of the process of the backend udp.

use std::time::Duration;

use flannel_udp::TunnelError;

/// The process could not be started, or asked.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// It does not answer, or refuses.
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
    /// It ended at once.
    #[error("the tunnel process does not start: {problem}")]
    NotStarted {
        /// The cause, in words.
        problem: String,
    },
    /// It was tried a short time ago.
    #[error("the tunnel process is started again in {}: \
        {problem}", flannel_host::duration::format(wait.as_secs() + 1))]
    Waiting {
        /// The time until then.
        wait: Duration,
        /// The cause of the last failure, in words.
        problem: String,
    },
    /// It said something else.
    #[error("the tunnel process answered {reply}, which is no answer")]
    Unexpected {
        /// The reply.
        reply: String,
    },
}

impl UdpError {
    /// Returns true if the same request may succeed later.
    pub const fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Tunnel(TunnelError::InUse { .. }) | Self::Waiting { .. }
        )
    }
}
