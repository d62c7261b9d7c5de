//! Sockets at given addresses of a host.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::Host;
use crate::eventually;

impl Host {
    /// A socket of this host that `bind` makes at `at`. An address that is in use is waited for: a
    /// command that another thread is just starting has all sockets of this process, also those
    /// closed since, until it executes.
    pub fn bound<S: Send>(
        &self,
        at: SocketAddr,
        bind: impl Fn(SocketAddr) -> io::Result<S> + Sync,
    ) -> Result<S> {
        eventually(
            &format!("a socket of {}", self.name()),
            Duration::from_secs(2),
            || {
                let made = match self.enter(|| bind(at)) {
                    Ok(Err(error)) if error.kind() == ErrorKind::AddrInUse => {
                        return Err(error).context(at.to_string());
                    }
                    Ok(made) => made.with_context(|| at.to_string()),
                    Err(error) => Err(error),
                };
                Ok(made)
            },
        )?
    }
}
