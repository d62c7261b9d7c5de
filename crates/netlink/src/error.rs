//! Errors of one request to the kernel.
//!
//! Failures are distinguished by their errno, never by their text. `Display` shows the attempted
//! operation and the kernel's own remark; the errno is the `source`, so print the whole chain.

use std::{fmt, io};

use nix::errno::Errno;
use thiserror::Error;

/// A verb on a kernel object that did not succeed.
#[derive(Debug, Error)]
#[error("cannot {verb} {object}: {fault}")]
pub struct NetlinkError {
    /// The attempted operation.
    pub verb: Verb,
    /// The object it was tried on, as text: `route 10.5.2.0/24`.
    pub object: String,
    /// The cause of the failure.
    #[source]
    pub fault: Fault,
}

impl NetlinkError {
    /// The errno the kernel answered with, when it answered with one.
    pub fn errno(&self) -> Option<Errno> {
        self.fault.errno()
    }

    /// The object, or the device it hangs on, does not exist. After a delete that is success.
    pub fn is_gone(&self) -> bool {
        matches!(
            self.errno(),
            Some(
                Errno::ENOENT | Errno::ESRCH | Errno::ENODEV | Errno::ENXIO | Errno::EADDRNOTAVAIL
            )
        )
    }

    /// Another object is in the way: same name, same VNI and port, same key.
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(Errno::EEXIST)
    }

    /// The same request may succeed later: another object is in the way, or the kernel lacks
    /// memory or time.
    pub fn is_temporary(&self) -> bool {
        let is_short = matches!(
            self.errno(),
            Some(
                Errno::EEXIST
                    | Errno::EADDRINUSE
                    | Errno::EBUSY
                    | Errno::ENOBUFS
                    | Errno::ENOMEM
                    | Errno::EAGAIN
                    | Errno::EINTR
            )
        );
        is_short
            || matches!(
                self.fault,
                Fault::NoAnswer | Fault::TimedOut { .. } | Fault::Interrupted { .. }
            )
    }

    /// The agent may not do this here.
    pub fn is_denied(&self) -> bool {
        matches!(self.errno(), Some(Errno::EPERM | Errno::EACCES))
    }

    /// The kernel was built without what was asked for.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP)
        )
    }
}

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Verb {
    Open,
    Read,
    LookUp,
    Create,
    Change,
    Replace,
    Delete,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::LookUp => "look up",
            Self::Create => "create",
            Self::Change => "change",
            Self::Replace => "replace",
            Self::Delete => "delete",
        })
    }
}

/// The cause of a failed request.
#[derive(Debug, Error)]
pub enum Fault {
    /// The kernel refused; `remark` is its own explanation (extended ack, kernel 4.12;
    /// `netlink_ack()` in [net/netlink/af_netlink.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netlink/af_netlink.c)), where it gave
    /// one.
    #[error("{}", remark.as_deref().unwrap_or("the kernel refused"))]
    Refused {
        /// The errno.
        #[source]
        errno: io::Error,
        /// The kernel's explanation, in its words.
        remark: Option<String>,
    },
    /// The socket could not be opened or set up.
    #[error("the netlink socket failed")]
    Socket(#[source] io::Error),
    /// The table changed during every one of several reads.
    #[error("the table kept changing during {attempts} reads; read it again later")]
    Interrupted {
        /// Reads tried.
        attempts: u32,
    },
    /// The answer holds an entry that could not be decoded, where a gap would be unsafe.
    #[error("{count} of its entries could not be decoded (message type {message_type})")]
    Undecodable {
        /// The netlink message type of the last of them.
        message_type: u16,
        /// The number of such entries.
        count: usize,
    },
    /// The kernel acknowledged the request without the answer it asks for.
    #[error("the kernel sent no answer")]
    NoAnswer,
    /// Nothing came back, for any request: the answer was lost, or the kernel holds its lock for
    /// very long.
    #[error("no answer while the kernel was silent for {seconds} s")]
    TimedOut {
        /// The silence.
        seconds: u64,
    },
    /// The kernel was built without XFRM.
    #[error("this kernel has no XFRM (CONFIG_XFRM_USER)")]
    NoXfrm,
    /// The connection task is gone. Connect again.
    #[error("the netlink connection is closed")]
    Closed,
}

impl Fault {
    /// The error of a verb on an object, by this fault.
    pub fn on(self, verb: Verb, object: impl fmt::Display) -> NetlinkError {
        NetlinkError {
            verb,
            object: object.to_string(),
            fault: self,
        }
    }

    /// The number of the kernel's error, if it is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { errno, .. } | Self::Socket(errno) => {
                errno.raw_os_error().map(Errno::from_raw)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn refused(errno: Errno) -> NetlinkError {
        Fault::Refused {
            errno: errno.into(),
            remark: None,
        }
        .on(Verb::Delete, "route 10.5.2.0/24")
    }

    #[test]
    fn errnos_have_names() {
        for gone in [
            Errno::ENOENT,
            Errno::ESRCH,
            Errno::ENODEV,
            Errno::EADDRNOTAVAIL,
        ] {
            assert!(refused(gone).is_gone(), "{gone}");
        }
        assert!(!refused(Errno::EEXIST).is_gone());
        assert!(refused(Errno::EEXIST).is_exists());
        assert!(
            refused(Errno::EADDRINUSE).is_temporary() && !refused(Errno::EINVAL).is_temporary()
        );
        assert!(refused(Errno::EPERM).is_denied());
        assert!(!Fault::Closed.on(Verb::Read, "links").is_gone());
    }

    #[test]
    fn the_chain_ends_in_the_errno() {
        let error = refused(Errno::ESRCH);
        assert_eq!(
            error.to_string(),
            "cannot delete route 10.5.2.0/24: the kernel refused"
        );
        let io = error
            .source()
            .and_then(|fault| fault.source())
            .expect("two links in the chain");
        assert_eq!(
            io.downcast_ref::<io::Error>()
                .and_then(io::Error::raw_os_error),
            Some(Errno::ESRCH as i32)
        );
    }
}
