//! A delegate that records its calls, and ends as the test configures it.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use super::Runtime;
use crate::eventually;

/// The delegate's directory in the node.
pub(super) const DIR: &str = "/run/cni-recorder";

/// It speaks every version. What it waits for is a pipe, and never for longer than a minute, so
/// that it goes if the test has gone.
const SCRIPT: &str = r#"#!/bin/sh
told=/run/cni-recorder/told/$CNI_COMMAND
conf=$(cat)
record() { printf '%s\n' "$1" >>/run/cni-recorder/calls; }
record "{\"verb\":\"$CNI_COMMAND\",\"id\":\"$CNI_CONTAINERID\",\"ifname\":\"$CNI_IFNAME\",\"netns\":\"$CNI_NETNS\",\"args\":\"$CNI_ARGS\",\"conf\":$conf}"
if [ -p "$told.wait" ]; then
  timeout 60 cat "$told.wait"
  record "{\"verb\":\"end of $CNI_COMMAND\"}"
fi
[ -f "$told.stderr" ] && cat "$told.stderr" >&2
[ -f "$told.stdout" ] && cat "$told.stdout"
[ -f "$told.code" ] && exit "$(cat "$told.code")"
exit 0
"#;

/// One call, as the delegate saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Call {
    /// CNI_COMMAND.
    pub verb: String,
    /// CNI_CONTAINERID.
    pub id: String,
    /// CNI_IFNAME.
    pub ifname: String,
    /// CNI_NETNS.
    pub netns: String,
    /// CNI_ARGS.
    pub args: String,
    /// Standard input.
    pub conf: Value,
}

/// The delegate `record` on one node.
#[derive(Clone, Debug)]
pub struct Recorder {
    runtime: Runtime,
}

impl Recorder {
    /// Puts the plugin where the runtime of this node finds it.
    pub fn new(runtime: &Runtime) -> Result<Self> {
        runtime.write(&format!("{DIR}/told/README"), "")?;
        runtime.write(&format!("{DIR}/record"), SCRIPT)?;
        runtime.node().sh(&format!("chmod 0755 {DIR}/record"))?;
        Ok(Self {
            runtime: runtime.clone(),
        })
    }

    /// From now on it prints this on standard output and ends with this status.
    pub fn set_output(&self, verb: &str, stdout: &str, code: u8) -> Result<()> {
        self.runtime
            .write(&format!("{DIR}/told/{verb}.stdout"), stdout)?;
        self.runtime
            .write(&format!("{DIR}/told/{verb}.code"), &code.to_string())
    }

    /// From now on it prints this on standard error.
    pub fn set_stderr(&self, verb: &str, stderr: &str) -> Result<()> {
        self.runtime
            .write(&format!("{DIR}/told/{verb}.stderr"), stderr)
    }

    /// From now on it waits until [`Recorder::release`].
    pub fn block(&self, verb: &str) -> Result<()> {
        self.runtime
            .node()
            .sh(&format!("mkfifo {DIR}/told/{verb}.wait"))
            .map(drop)
    }

    /// Lets one that waits go on, and the next ones pass.
    pub fn release(&self, verb: &str) -> Result<()> {
        let pipe = self
            .runtime
            .node()
            .outside_path(format!("{DIR}/told/{verb}.wait"));
        // Opening it waits for the reader, and closing it ends its wait.
        drop(fs::OpenOptions::new().write(true).open(&pipe)?);
        fs::remove_file(pipe).context("the pipe")
    }

    /// All calls so far, in order.
    pub fn calls(&self) -> Result<Vec<Call>> {
        let Ok(text) = self.runtime.read(&format!("{DIR}/calls")) else {
            return Ok(Vec::new());
        };
        text.lines()
            .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
            .collect()
    }

    /// The verbs of all calls so far.
    pub fn verbs(&self) -> Result<Vec<String>> {
        Ok(self.calls()?.into_iter().map(|call| call.verb).collect())
    }

    /// Waits until it was called so often.
    pub fn wait_calls(&self, count: usize) -> Result<()> {
        eventually("calls of the delegate", Duration::from_secs(20), || {
            (self.calls().ok()?.len() >= count).then_some(())
        })
    }

    /// Forgets what was.
    pub fn forget(&self) -> Result<()> {
        self.runtime.write(&format!("{DIR}/calls"), "")
    }
}
