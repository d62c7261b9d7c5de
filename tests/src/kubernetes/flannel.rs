//! flannel on the cluster: our manifest as it is shipped.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};

use super::{Kubernetes, items};
use crate::host::HostCommand;

/// The namespace of our pods.
pub const NAMESPACE: &str = "kube-flannel";
/// Their DaemonSet.
pub const SET: &str = "daemonset/kube-flannel-ds";
/// Their label.
pub const LABEL: &str = "app=flannel";

/// By then three pods have been replaced, one after the other.
pub const ROLLOUT: Duration = Duration::from_mins(3);

/// The manifest.
pub fn manifest() -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kube-flannel.yml");
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

impl Kubernetes {
    /// Applies a manifest of flannel, and waits until nodes and pods are ready.
    pub fn install(&self, manifest: &str) -> Result<()> {
        self.kubectl().apply(manifest)?;
        self.wait_ready(NAMESPACE, LABEL)
    }

    /// Applies a manifest of flannel in place of the one before, and starts every agent with it.
    pub fn reinstall(&self, manifest: &str) -> Result<()> {
        self.kubectl().apply(manifest)?;
        // A change that is only in the ConfigMap or the role does not restart the pods.
        self.restart()
    }

    /// The same with a manifest whose pods differ: their change starts every agent.
    pub fn roll_out(&self, manifest: &str) -> Result<()> {
        self.kubectl().apply(manifest)?;
        self.wait_rolled_out()
    }

    /// Starts every agent again, one after the other.
    pub fn restart(&self) -> Result<()> {
        self.rollout("restart").run()?;
        self.wait_rolled_out()
    }

    fn wait_rolled_out(&self) -> Result<()> {
        self.rollout("status").limit(ROLLOUT).run()?;
        self.wait_ready(NAMESPACE, LABEL)
    }

    fn rollout(&self, verb: &str) -> HostCommand {
        let namespace = format!("--namespace={NAMESPACE}");
        self.kubectl().command(["rollout", verb, &namespace, SET])
    }

    /// Puts every agent in a mode.
    pub fn set_mode(&self, mode: &str) -> Result<()> {
        for node in &self.nodes {
            self.agent(node.name(), &["datapath", "set", mode])?;
        }
        Ok(())
    }

    /// Runs a command of the agent in its pod on a node.
    pub fn agent(&self, node: &str, command: &[&str]) -> Result<String> {
        let field = format!("--field-selector=spec.nodeName={node}");
        let pods = self.kubectl().get([
            "pods",
            "--namespace",
            NAMESPACE,
            "--selector",
            LABEL,
            &field,
        ])?;
        let pod = items(&pods).find_map(|pod| pod["metadata"]["name"].as_str());
        let pod = pod.with_context(|| format!("{node}: no pod with {LABEL}"))?;
        let exec = [
            "exec",
            "--namespace",
            NAMESPACE,
            pod,
            "--container=kube-flannel",
            "--",
            "flannel-agent",
        ];
        self.kubectl()
            .run(exec.into_iter().chain(command.iter().copied()))
    }
}
