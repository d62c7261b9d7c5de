//! The life of a test's objects: made, waited for, deleted.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use flannel_cluster::{
    AT_ONCE,
    client::ClusterClient,
    error::ClusterError,
    exec::Container,
    members::ClusterNode,
    progress::Progress,
    records::{AnyObject, PodObject, ServiceObject},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::core::{
    params::{DeleteParams, GetParams, PostParams},
    request::{Error, Request},
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::manifest::{self, CONTAINER, PodSettings, Role};

const NAMESPACES: &str = "/api/v1/namespaces";
/// The time between two looks at pods that start.
const PERIOD: Duration = Duration::from_millis(500);
/// A namespace has no service account for pods in its first moments.
const ACCOUNT: Duration = Duration::from_secs(30);
/// Until a namespace is gone, with its pods.
const GONE: Duration = Duration::from_mins(2);

/// A pod of the test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestPod {
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The reason why it does not run.
    pub problem: Option<String>,
}

/// The pods on one node, and the Service in front of its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestNode {
    /// The name of the node.
    pub name: String,
    /// A pod of each role.
    pub pods: BTreeMap<Role, TestPod>,
    /// The addresses of the Service.
    pub service: Vec<IpAddr>,
}

/// The namespace of a test.
#[derive(Clone)]
pub struct TestNamespace {
    client: ClusterClient,
    name: String,
}

impl TestNamespace {
    /// Chooses a name that no other test has. The namespace does not exist yet.
    pub fn new(client: &ClusterClient) -> Self {
        let name = format!("flannel-connectivity-test-{:08x}", rand::random::<u32>());
        Self {
            client: client.clone(),
            name,
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The container of a pod.
    pub fn container(&self, role: Role, node: usize) -> Container {
        Container {
            namespace: self.name.clone(),
            pod: role.pod(node),
            name: CONTAINER.to_owned(),
        }
    }

    /// Makes it.
    pub async fn create(&self) -> Result<(), ClusterError> {
        let what = format!("making the namespace {}", self.name);
        self.client
            .call::<AnyObject>(&what, post(NAMESPACES, &manifest::namespace(&self.name)))
            .await
            .map(drop)
    }

    /// Makes pods and Services for all nodes.
    pub async fn deploy(
        &self,
        nodes: &[ClusterNode],
        settings: &PodSettings,
    ) -> Result<(), ClusterError> {
        let deadline = Instant::now() + ACCOUNT;
        let of_nodes = stream::iter(nodes.iter().enumerate());
        let of_nodes =
            of_nodes.map(|(number, node)| self.deploy_on(number, node, settings, deadline));
        of_nodes.buffer_unordered(AT_ONCE).try_collect::<()>().await
    }

    async fn deploy_on(
        &self,
        number: usize,
        node: &ClusterNode,
        settings: &PodSettings,
        deadline: Instant,
    ) -> Result<(), ClusterError> {
        let addresses: Vec<&str> = node.node.internal_addresses().collect();
        for role in Role::ALL {
            let pod = manifest::pod(role, number, node.name(), &addresses, settings);
            self.create_pod(&pod, deadline).await?;
        }
        let what = "making a Service in the test's namespace";
        let service = manifest::service(number, settings.port);
        self.client
            .call::<AnyObject>(what, post(&self.path("services"), &service))
            .await
            .map(drop)
    }

    /// Tries again while the namespace has no service account.
    async fn create_pod(&self, pod: &Value, deadline: Instant) -> Result<(), ClusterError> {
        loop {
            let what = "making a pod in the test's namespace";
            match self
                .client
                .call::<AnyObject>(what, post(&self.path("pods"), pod))
                .await
            {
                Err(error) if lacks_account(&error) && Instant::now() < deadline => {
                    sleep(PERIOD).await;
                }
                result => return result.map(drop),
            }
        }
    }

    /// Waits until the pods run, at most so long; all nodes, with their pods as they are then.
    pub async fn wait(
        &self,
        nodes: &[ClusterNode],
        limit: Duration,
        progress: &mut Progress,
    ) -> Result<Vec<TestNode>, ClusterError> {
        let deadline = Instant::now() + limit;
        loop {
            let pods: Vec<PodObject> = self
                .client
                .list("listing the test's pods", &self.path("pods"), None)
                .await?;
            let is_final = |pod: &PodObject| pod.is_running() || pod.status.phase == "Failed";
            let started = pods.iter().filter(|pod| is_final(pod)).count();
            let total = nodes.len() * Role::ALL.len();
            progress.show(&format!("{started} of {total} test pods started or failed"));
            if started == total || Instant::now() >= deadline {
                let services: Vec<ServiceObject> = self
                    .client
                    .list("listing the test's Services", &self.path("services"), None)
                    .await?;
                return Ok(found(nodes, &pods, &services));
            }
            sleep(PERIOD).await;
        }
    }

    /// Deletes it with all that is in it.
    pub async fn delete(&self) -> Result<(), ClusterError> {
        let what = format!("deleting the namespace {}", self.name);
        let request = Request::new(NAMESPACES).delete(&self.name, &DeleteParams::default());
        match self.client.call::<AnyObject>(&what, request).await {
            Err(error) if error.code() == Some(404) => Ok(()),
            result => result.map(drop),
        }
    }

    /// Waits until it is gone; false if it takes too long.
    pub async fn wait_gone(&self, progress: &mut Progress) -> Result<bool, ClusterError> {
        let deadline = Instant::now() + GONE;
        while Instant::now() < deadline {
            let request = Request::new(NAMESPACES).get(&self.name, &GetParams::default());
            match self
                .client
                .call::<AnyObject>("looking for the test's namespace", request)
                .await
            {
                Err(error) if error.code() == Some(404) => return Ok(true),
                result => {
                    result?;
                }
            }
            progress.show(&format!(
                "waiting until the namespace {} is gone",
                self.name
            ));
            sleep(PERIOD).await;
        }
        Ok(false)
    }

    fn path(&self, kind: &str) -> String {
        format!("{NAMESPACES}/{}/{kind}", self.name)
    }
}

fn post(path: &str, object: &Value) -> Result<http::Request<Vec<u8>>, Error> {
    let body = serde_json::to_vec(object).map_err(Error::SerializeBody)?;
    Request::new(path).create(&PostParams::default(), body)
}

fn lacks_account(error: &ClusterError) -> bool {
    error.code() == Some(403) && error.to_string().contains("service account")
}

/// The pods and Services of each node. Pure.
fn found(nodes: &[ClusterNode], pods: &[PodObject], services: &[ServiceObject]) -> Vec<TestNode> {
    let parsed = |texts: Vec<String>| {
        texts
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect::<Vec<IpAddr>>()
    };
    let test_pod = |name: &str| match pods.iter().find(|pod| pod.metadata.name == name) {
        Some(pod) if pod.is_running() => TestPod {
            addresses: parsed(pod.addresses()),
            problem: None,
        },
        Some(pod) => TestPod {
            addresses: Vec::new(),
            problem: Some(pod.problem()),
        },
        None => TestPod {
            addresses: Vec::new(),
            problem: Some("it was deleted".to_owned()),
        },
    };
    let node = |(number, node): (usize, &ClusterNode)| {
        let server = Role::Server.pod(number);
        let service = services
            .iter()
            .find(|service| service.metadata.name == server);
        let mut pods: BTreeMap<Role, TestPod> = Role::ALL
            .into_iter()
            .map(|role| (role, test_pod(&role.pod(number))))
            .collect();
        // Kubernetes before 1.28 reports one address of a pod in the node's network, and the server
        // listens on all that the Node has.
        if let Some(host) = pods
            .get_mut(&Role::Host)
            .filter(|host| host.problem.is_none())
        {
            host.addresses = parsed(node.node.internal_addresses().map(str::to_owned).collect());
        }
        TestNode {
            name: node.name().to_owned(),
            pods,
            service: service
                .map(|service| parsed(service.addresses()))
                .unwrap_or_default(),
        }
    };
    nodes.iter().enumerate().map(node).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_does_not_run_is_known_with_its_reason() {
        let addresses = json!([
            { "type": "InternalIP", "address": "192.0.2.1" },
            { "type": "Hostname", "address": "n" },
        ]);
        let node = json!({ "metadata": { "name": "n1" }, "status": { "addresses": addresses } });
        let nodes = [ClusterNode {
            node: serde_json::from_value(node).expect("a node"),
            pod: None,
        }];
        let pod = |name: &str, phase: &str| -> PodObject {
            let status =
                json!({ "phase": phase, "podIP": "10.244.1.2", "message": "DeadlineExceeded" });
            serde_json::from_value(json!({ "metadata": { "name": name }, "status": status }))
                .expect("a pod")
        };
        let pods = [
            pod("server-0", "Running"),
            pod("client-0", "Failed"),
            pod("host-0", "Running"),
        ];
        let node = found(&nodes, &pods, &[]).remove(0);
        assert_eq!(
            node.pods[&Role::Server].addresses,
            ["10.244.1.2".parse::<IpAddr>().expect("an address")]
        );
        assert_eq!(
            node.pods[&Role::Client].problem.as_deref(),
            Some("DeadlineExceeded")
        );
        assert_eq!(
            node.pods[&Role::Host].addresses,
            ["192.0.2.1".parse::<IpAddr>().expect("an address")]
        );
    }
}
