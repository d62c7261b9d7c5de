//! The nodes of the cluster, each with its pod of flannel.

use std::collections::BTreeMap;

use flannel_host::words::compare_names;
use kube::core::{params::ListParams, request::Request};
use serde::de::DeserializeOwned;

use super::{
    client::ClusterClient,
    error::ClusterError,
    exec::Container,
    records::{ContainerSpec, ListPage, NodeObject, PodObject},
};

/// Objects on one page.
const PAGE: u32 = 500;
/// The container of the agent. A pod without one of this name is asked in its first container.
const CONTAINER: &str = "kube-flannel";

/// The pods of flannel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPods {
    /// Their namespace.
    pub namespace: String,
    /// The selector of their labels.
    pub selector: String,
}

/// A node of the cluster.
#[derive(Clone, Debug)]
pub struct ClusterNode {
    /// The Node.
    pub node: NodeObject,
    /// The pod of flannel on it; none if there is none.
    pub pod: Option<PodObject>,
}

/// A node on which no pod of flannel runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentAbsence {
    /// It has none.
    #[error("no pod of flannel in namespace {namespace}")]
    NoPod {
        /// The namespace of the agents' pods.
        namespace: String,
    },
    /// It has one that does not run.
    #[error("pod {pod} does not run: {problem}")]
    DoesNotRun {
        /// The pod.
        pod: String,
        /// The reason.
        problem: String,
    },
}

impl ClusterNode {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.node.metadata.name
    }

    /// The container in which the agent runs, if there is one.
    pub fn agent(&self, pods: &AgentPods) -> Option<Container> {
        let pod = self.pod.as_ref()?;
        let name = agent_container(pod)?.name.clone();
        Some(Container {
            namespace: pods.namespace.clone(),
            pod: pod.metadata.name.clone(),
            name,
        })
    }

    /// The container of the agent, which runs.
    pub fn running_agent(&self, pods: &AgentPods) -> Result<Container, AgentAbsence> {
        let no_pod = || AgentAbsence::NoPod {
            namespace: pods.namespace.clone(),
        };
        let pod = self.pod.as_ref().ok_or_else(no_pod)?;
        if !pod.is_running() {
            return Err(AgentAbsence::DoesNotRun {
                pod: pod.metadata.name.clone(),
                problem: pod.problem(),
            });
        }
        self.agent(pods).ok_or_else(no_pod)
    }

    /// The DaemonSet of the pod, if one made it.
    pub fn daemon_set(&self) -> Option<&str> {
        let owners = &self.pod.as_ref()?.metadata.owners;
        owners
            .iter()
            .find(|owner| owner.kind == "DaemonSet")
            .map(|owner| owner.name.as_str())
    }

    /// The image of that container.
    pub fn image(&self) -> Option<&str> {
        Some(&agent_container(self.pod.as_ref()?)?.image)
            .filter(|image| !image.is_empty())
            .map(String::as_str)
    }
}

/// The container of a pod in which the agent runs: of this name, or the first.
fn agent_container(pod: &PodObject) -> Option<&ContainerSpec> {
    let containers = &pod.spec.containers;
    containers
        .iter()
        .find(|container| container.name == CONTAINER)
        .or(containers.first())
}

impl ClusterClient {
    /// Returns the nodes with Linux, by name as people sort them, each with its pod of flannel.
    pub async fn nodes(&self, pods: &AgentPods) -> Result<Vec<ClusterNode>, ClusterError> {
        let nodes: Vec<NodeObject> = self
            .list("listing the nodes", "/api/v1/nodes", None)
            .await?;
        let path = format!("/api/v1/namespaces/{}/pods", pods.namespace);
        let found: Vec<PodObject> = self
            .list("listing the pods of flannel", &path, Some(&pods.selector))
            .await?;
        Ok(joined(nodes, found))
    }

    /// Returns all objects below a path, page by page.
    pub async fn list<T: DeserializeOwned>(
        &self,
        what: &str,
        path: &str,
        selector: Option<&str>,
    ) -> Result<Vec<T>, ClusterError> {
        let (mut objects, mut next) = (Vec::new(), String::new());
        loop {
            let mut options = ListParams::default().limit(PAGE);
            if let Some(selector) = selector {
                options = options.labels(selector);
            }
            if !next.is_empty() {
                options = options.continue_token(&next);
            }
            let page: ListPage<T> = self.call(what, Request::new(path).list(&options)).await?;
            objects.extend(page.items);
            next = page.metadata.next;
            if next.is_empty() {
                return Ok(objects);
            }
        }
    }
}

/// Gives each node its pod: while one replaces another, the one that runs, then the one that is to
/// stay.
fn joined(nodes: Vec<NodeObject>, pods: Vec<PodObject>) -> Vec<ClusterNode> {
    let rank = |pod: &PodObject| (pod.is_running(), !pod.is_deleted());
    let mut of_node = BTreeMap::<String, PodObject>::new();
    for pod in pods {
        let known = of_node.get(&pod.spec.node_name);
        if known.is_none_or(|known| rank(&pod) > rank(known)) {
            of_node.insert(pod.spec.node_name.clone(), pod);
        }
    }
    let linux = nodes.into_iter().filter(NodeObject::is_linux);
    let mut members: Vec<ClusterNode> = linux
        .map(|node| ClusterNode {
            pod: of_node.remove(&node.metadata.name),
            node,
        })
        .collect();
    members.sort_by(|a, b| compare_names(a.name(), b.name()));
    members
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::nodes::agent_pods;

    fn read<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("an object")
    }

    #[test]
    fn every_linux_node_is_listed_once_with_the_pod_that_runs() {
        let node = |name: &str, os: &str| {
            read(json!({ "metadata": { "name": name, "labels": { "kubernetes.io/os": os } } }))
        };
        let pod = |name: &str, node: &str, phase: &str| {
            let containers =
                json!([{ "name": "other" }, { "name": "kube-flannel", "image": "i:1" }]);
            let spec = json!({ "nodeName": node, "containers": containers });
            read(
                json!({ "metadata": { "name": name }, "spec": spec, "status": { "phase": phase } }),
            )
        };
        let nodes = vec![
            node("b", "linux"),
            node("w", "windows"),
            node("a10", "linux"),
            node("a9", "linux"),
        ];
        let pods = vec![
            pod("old", "b", "Failed"),
            pod("new", "b", "Running"),
            pod("late", "b", "Pending"),
        ];
        let members = joined(nodes, pods);
        let names: Vec<_> = members.iter().map(ClusterNode::name).collect();
        assert_eq!(names, ["a9", "a10", "b"]);
        let of = agent_pods();
        assert_eq!(members[0].agent(&of), None);
        let agent = members[2].agent(&of).expect("a pod");
        assert_eq!(
            (agent.pod.as_str(), agent.name.as_str()),
            ("new", "kube-flannel")
        );
        assert_eq!(members[2].image(), Some("i:1"));
    }
}
