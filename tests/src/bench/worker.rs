//! This program inside a pod: server and client of request and response as processes of their own, so that they can
//! be pinned and their CPU time is theirs.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, ensure};
use clap::Args;

use crate::load::rr::{self, Protocol};

/// What a server prints when it can be asked.
pub(super) const READY: &str = "ready";

#[derive(Debug, Args)]
pub(super) struct Server {
    protocol: Protocol,
    bind: SocketAddr,
}

#[derive(Debug, Args)]
pub(super) struct Client {
    protocol: Protocol,
    server: SocketAddr,
    seconds: u32,
}

impl Server {
    pub(super) fn run(&self) -> Result<()> {
        rr::serve(self.protocol, self.bind, |_| {
            println!("{READY}");
            Ok(())
        })
    }
}

impl Client {
    pub(super) fn run(&self) -> Result<()> {
        let report = rr::measure(self.protocol, self.server, Duration::from_secs(self.seconds.into()))?;
        ensure!(report.lost * 1000 <= report.transactions, "too many requests without an answer: {report:?}");
        println!("{}", serde_json::to_string(&report)?);
        Ok(())
    }
}
