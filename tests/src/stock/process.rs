//! A real process of stock flannel. No package registry has one, so `FLANNEL_STOCK_FLANNELD` names
//! the binary.

use std::{env, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

use crate::{ChildGuard, Node, eventually, harness::not_run::not_run};

const VARIABLE: &str = "FLANNEL_STOCK_FLANNELD";
const LIMIT: Duration = Duration::from_secs(30);

/// Stock flannel's binary.
#[derive(Debug)]
pub struct StockBinary(PathBuf);

/// A stock flanneld that runs on a node.
#[derive(Debug)]
pub struct StockProcess {
    child: ChildGuard,
}

impl StockBinary {
    /// The binary; `None`, and a line for `what`, if the variable is not set.
    ///
    /// # Errors
    /// The variable names no file.
    pub fn find(what: &str) -> Result<Option<Self>> {
        let Some(path) = env::var_os(VARIABLE).map(PathBuf::from) else {
            not_run(what, &format!("{VARIABLE} names no flanneld"));
            return Ok(None);
        };
        ensure!(
            path.is_file(),
            "{VARIABLE}: {} is not a file",
            path.display()
        );
        Ok(Some(Self(path)))
    }

    /// Starts flanneld on a node as the pages of flannel do, and waits until it has its lease and
    /// its device.
    pub fn start(&self, node: &Node, etcd: &str) -> Result<StockProcess> {
        // A CNI plugin does that on a stock node.
        node.sh("sysctl -qw net.ipv4.ip_forward=1")?;
        let child = node.spawn(
            "flanneld",
            [
                self.0.display().to_string(),
                format!("-etcd-endpoints={etcd}"),
                "-iface=eth0".to_owned(),
                "-ip-masq".to_owned(),
            ],
        )?;
        eventually("stock flannel's backend", LIMIT, || {
            ensure!(
                child.log().contains("Running backend"),
                "{}",
                child.log_tail(10)
            );
            Ok(())
        })?;
        node.subnet_env().context("subnet.env of stock flannel")?;
        Ok(StockProcess { child })
    }
}

impl StockProcess {
    /// Ends it as a service manager does.
    pub fn end(self) -> Result<()> {
        self.child.signal(Signal::SIGTERM)?;
        self.child.wait(LIMIT).map(drop)
    }
}
