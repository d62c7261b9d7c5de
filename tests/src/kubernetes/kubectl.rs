//! kubectl, as the cluster's administrator runs it on the first node.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{credentials::Credentials, parts::Parts};
use crate::{ChildGuard, Node, host::HostCommand};

/// A cluster under load answers later than an idle one.
const LIMIT: Duration = Duration::from_mins(1);

/// By then deleted pods have ended, and their networks.
const DELETED: Duration = Duration::from_mins(2);

/// The home directory, on the node's own tmpfs: kubectl keeps a cache there.
const HOME: &str = "HOME=/run/kubectl";

/// kubectl with its credentials.
#[derive(Clone, Debug)]
pub struct Kubectl {
    node: Node,
    start: [String; 2],
}

impl Kubectl {
    pub(super) fn new(node: &Node, parts: &Parts, credentials: &Credentials) -> Self {
        let kubeconfig = format!("--kubeconfig={}", credentials.kubeconfig("admin"));
        Self {
            node: node.clone(),
            start: [parts.program("kubectl"), kubeconfig],
        }
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &str {
        self.start[1].trim_start_matches("--kubeconfig=")
    }

    /// Its command line, without a verb.
    pub fn command_line(&self) -> String {
        self.start.join(" ")
    }

    /// The flag by which kubectl, and the agent's commands on a cluster, find the administrator's
    /// credentials.
    pub fn credentials(&self) -> &str {
        &self.start[1]
    }

    /// A command, not yet started.
    pub fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> HostCommand {
        self.node.command(self.line(arguments)).limit(LIMIT)
    }

    /// Runs a command and requires exit status 0; what it printed.
    pub fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<String> {
        Ok(self.command(arguments).run()?.stdout)
    }

    /// Starts a command that runs until it is ended.
    pub fn start<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<ChildGuard> {
        self.node.spawn("kubectl", self.line(arguments))
    }

    fn line<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let arguments = arguments.into_iter().map(str::to_owned);
        ["env".to_owned(), HOME.to_owned()]
            .into_iter()
            .chain(self.start.clone())
            .chain(arguments)
            .collect()
    }

    /// Runs `kubectl get` and reads the objects.
    pub fn get<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<Value> {
        let line = ["get", "--output=json"].into_iter().chain(arguments);
        serde_json::from_str(&self.run(line)?).context("the output of kubectl get")
    }

    /// Applies manifests.
    pub fn apply(&self, manifests: &str) -> Result<()> {
        self.command(["apply", "--filename=-"])
            .input(manifests)
            .run()?;
        Ok(())
    }

    /// Deletes objects, and waits until they are gone: the next test would take them for objects
    /// that stay.
    pub fn delete<'a>(&self, objects: impl IntoIterator<Item = &'a str>) -> Result<()> {
        self.command(["delete"].into_iter().chain(objects))
            .limit(DELETED)
            .run()
            .map(drop)
    }

    /// Deletes objects that manifests describe, and waits until they are gone with the pods that
    /// they own.
    pub fn delete_manifests(&self, manifests: &str) -> Result<()> {
        let command = [
            "delete",
            "--ignore-not-found",
            "--cascade=foreground",
            "--filename=-",
        ];
        self.command(command)
            .limit(DELETED)
            .input(manifests)
            .run()
            .map(drop)
    }
}
