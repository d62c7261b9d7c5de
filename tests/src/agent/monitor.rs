//! `flannel-agent monitor` on a node, as an operator runs it next to the agent.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{Agent, ChildGuard, eventually};

/// A monitor that writes JSON, or a capture file.
#[derive(Debug)]
pub struct Monitor {
    child: ChildGuard,
}

impl Agent {
    /// Starts a monitor with these flags, and waits until the programs send it events.
    pub fn monitor(&self, flags: &[&str]) -> Result<Monitor> {
        let child = self
            .node()
            .spawn("monitor", self.argv(&[&["monitor"], flags].concat()))?;
        let monitor = Monitor { child };
        eventually("monitoring", Duration::from_secs(10), || {
            ensure!(
                monitor.child.log().contains("monitoring;"),
                "{}",
                monitor.child.log()
            );
            Ok(())
        })?;
        Ok(monitor)
    }
}

impl Monitor {
    /// The packets shown so far. An incomplete line does not count.
    pub fn packets(&self) -> Result<Vec<Value>> {
        let log = self.child.log();
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines().filter(|line| line.starts_with('{'));
        lines
            .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
            .collect()
    }

    /// Returns the packets shown so far to which a program gave a reason.
    pub fn of(&self, program: &str, reason: &str) -> Result<Vec<Value>> {
        let mut packets = self.packets()?;
        packets.retain(|packet| packet["program"] == program && packet["reason"] == reason);
        Ok(packets)
    }

    /// Ends it as Ctrl-C does; everything it wrote.
    pub fn interrupt(&self) -> Result<String> {
        self.child.signal(Signal::SIGINT)?;
        self.wait()
    }

    /// Waits until it ends by itself; everything it wrote.
    pub fn wait(&self) -> Result<String> {
        self.child.wait_success(Duration::from_secs(20))?;
        Ok(self.child.log())
    }

    /// Returns true until it has ended.
    pub fn is_running(&self) -> bool {
        self.child.is_running()
    }

    /// Stops it, as a terminal that takes no output does.
    pub fn pause(&self) -> Result<()> {
        self.child.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    pub fn resume(&self) -> Result<()> {
        self.child.signal(Signal::SIGCONT)
    }

    /// Kills it.
    pub fn kill9(&self) -> Result<()> {
        self.child.kill9()
    }
}
