//! The values that hosts of a test exchange, as JSON. Pure.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{
    deploy::{TestNode, TestPod},
    diagnosis::{CheckFinding, Explanation},
    manifest::Role,
    plan::Batch,
    target::Outcome,
};

/// A host that waits for a test to begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    /// Its name in the report.
    pub(super) name: String,
    /// The addresses of the namespace that sends.
    pub(super) client: Vec<IpAddr>,
    /// The addresses of the namespace that answers.
    pub(super) server: Vec<IpAddr>,
    /// The addresses at which peers reach the host.
    pub(super) host: Vec<IpAddr>,
}

/// A test that has begun. All hosts plan the same checks by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Start {
    /// Distinguishes the test from earlier ones.
    pub(super) run: String,
    /// The hosts, by name.
    pub(super) members: Vec<Member>,
    /// The port of all servers.
    pub(super) port: u16,
    /// The modes to switch to; if empty, the test uses the active modes.
    pub(super) modes: Vec<String>,
    /// The address outside the cluster.
    pub(super) outside: Option<String>,
}

/// A host that is ready for the checks in one mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ready {
    /// The active mode.
    pub(super) mode: String,
    /// A remark, such as why it is another than the one to switch to.
    pub(super) note: Option<String>,
}

/// The findings of a host in one mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Findings {
    /// The results of its probes; the key of each is the number of its check.
    pub(super) outcomes: Vec<Outcome>,
    /// The reason why some probes have no result.
    pub(super) silence: Option<String>,
}

/// A host's view on the failures that concern it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Diagnosis {
    /// Its explanations.
    pub(super) explanations: Vec<Explanation>,
    /// Its findings.
    pub(super) findings: Vec<CheckFinding>,
}

impl Findings {
    /// The results of a batch, or the reason why it has none.
    pub(super) fn of(&self, batch: &Batch) -> Result<Vec<Outcome>, String> {
        let is_of =
            |outcome: &&Outcome| batch.targets.iter().any(|target| target.key == outcome.key);
        let outcomes: Vec<_> = self.outcomes.iter().filter(is_of).cloned().collect();
        match &self.silence {
            Some(silence) if outcomes.is_empty() => Err(silence.clone()),
            _ => Ok(outcomes),
        }
    }
}

impl Member {
    /// The node of the plan that the host is.
    pub(super) fn node(&self) -> TestNode {
        let pod = |addresses: &[IpAddr]| TestPod {
            addresses: addresses.to_vec(),
            problem: None,
        };
        let pods = [
            (Role::Client, &self.client),
            (Role::Server, &self.server),
            (Role::Host, &self.host),
        ];
        TestNode {
            name: self.name.clone(),
            pods: pods
                .into_iter()
                .map(|(role, addresses)| (role, pod(addresses)))
                .collect(),
            service: Vec::new(),
        }
    }
}
