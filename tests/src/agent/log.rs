//! The reports of an agent: in its log, by its exit status, in `status`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{Agent, eventually};

/// Start-up, an outage of the store and its end are each noticed within this time.
const SOON: Duration = Duration::from_secs(20);

impl Agent {
    /// Waits until its output has all of `words` in it.
    pub fn wait_log(&self, words: &[&str]) -> Result<()> {
        eventually(
            &format!("{words:?} in the log of {}", self.node().name()),
            SOON,
            || {
                let log = self.child().log();
                ensure!(
                    words.iter().all(|word| log.contains(word)),
                    "{}",
                    self.child().log_tail(10)
                );
                Ok(())
            },
        )
    }

    /// Returns the number of occurrences of `text` in its output.
    pub fn log_count(&self, text: &str) -> usize {
        self.child().log().matches(text).count()
    }

    /// Waits for an agent that ends by itself: its exit status and all its output.
    pub fn wait_end(&self) -> Result<(i32, String)> {
        let status = self.child().wait(SOON)?;
        Ok((
            status
                .code()
                .with_context(|| format!("ended by a signal: {status}"))?,
            self.child().log(),
        ))
    }

    /// Waits until `judge` accepts its status document.
    pub fn wait_status(&self, what: &str, judge: impl Fn(&Value) -> Result<()>) -> Result<Value> {
        eventually(
            &format!("{what} in the status of {}", self.node().name()),
            SOON,
            || {
                let status = self.status()?;
                judge(&status).with_context(|| format!("status: {status}"))?;
                Ok(status)
            },
        )
    }

    /// Waits until `status` says ready, or not.
    pub fn wait_ready_is(&self, ready: bool) -> Result<Value> {
        self.wait_status(&format!("ready={ready}"), |status| {
            ensure!(status["ready"] == ready);
            Ok(())
        })
    }
}
