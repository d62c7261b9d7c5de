//! The objects of a test: a namespace, three pods on each node, and a Service for one of them.
//! Pure.

use std::time::Duration;

use serde_json::{Value, json};

/// The label of the namespace and of everything in it.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "flannel-connectivity-test");
/// The label by which a Service finds its pod.
const NAME: &str = "flannel-connectivity-test";
/// Pods end after this time if the test was killed.
pub const LIFETIME: Duration = Duration::from_mins(30);
/// The container of each pod.
pub const CONTAINER: &str = "test";
/// A user without privileges; the pods need none.
const USER: u32 = 65_534;

/// The role of a pod on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Sends.
    Client,
    /// Answers.
    Server,
    /// Sends and answers in the node's own network.
    Host,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Client, Self::Server, Self::Host];

    /// The name of the pod on the node with this number.
    pub fn pod(self, node: usize) -> String {
        let role = match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Host => "host",
        };
        format!("{role}-{node}")
    }
}

/// The settings of all pods of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSettings {
    /// The image, which has our binary in its search path.
    pub image: String,
    /// The port of the servers, which is free on each node.
    pub port: u16,
}

/// The namespace.
pub fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": name, "labels": {
            MANAGED_BY.0: MANAGED_BY.1,
            // The pods in the networks of nodes are refused by the other levels.
            "pod-security.kubernetes.io/enforce": "privileged",
        } },
    })
}

/// A pod on the node with this number and name. A server in the node's network listens on
/// `addresses` alone.
pub fn pod(
    role: Role,
    number: usize,
    node: &str,
    addresses: &[&str],
    settings: &PodSettings,
) -> Value {
    let name = role.pod(number);
    let mut command = vec![
        "flannel-agent".to_owned(),
        "connectivity".to_owned(),
        "serve".to_owned(),
    ];
    command.extend([
        format!("--name={name}"),
        format!("--port={}", settings.port),
    ]);
    let is_host = role == Role::Host;
    command.extend(
        addresses
            .iter()
            .filter(|_| is_host)
            .map(|address| format!("--address={address}")),
    );
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": { MANAGED_BY.0: MANAGED_BY.1, NAME: name } },
        "spec": {
            "nodeName": node,
            "hostNetwork": is_host,
            "dnsPolicy": if is_host { "ClusterFirstWithHostNet" } else { "ClusterFirst" },
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LIFETIME.as_secs(),
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "tolerations": [{ "operator": "Exists" }],
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": CONTAINER,
                "image": settings.image,
                "imagePullPolicy": "IfNotPresent",
                "command": command,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "resources": { "requests": { "cpu": "5m", "memory": "16Mi" } },
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                },
            }],
        },
    })
}

/// The Service in front of the server on the node with this number.
pub fn service(number: usize, port: u16) -> Value {
    let name = Role::Server.pod(number);
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "labels": { MANAGED_BY.0: MANAGED_BY.1 } },
        "spec": {
            "selector": { NAME: name },
            "ipFamilyPolicy": "PreferDualStack",
            "ports": [
                { "name": "tcp", "port": port, "protocol": "TCP" },
                { "name": "udp", "port": port, "protocol": "UDP" },
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pod_of_the_node_s_network_listens_on_chosen_addresses() {
        let settings = PodSettings {
            image: "i:1".to_owned(),
            port: 7,
        };
        let pod = |role| pod(role, 2, "n3", &["192.0.2.3"], &settings);
        let host = pod(Role::Host);
        assert_eq!(host["spec"]["hostNetwork"], true);
        let command = [
            "flannel-agent",
            "connectivity",
            "serve",
            "--name=host-2",
            "--port=7",
            "--address=192.0.2.3",
        ];
        assert_eq!(host["spec"]["containers"][0]["command"], json!(command));
        for role in [Role::Client, Role::Server] {
            assert_eq!(pod(role)["spec"]["hostNetwork"], false);
            assert_eq!(
                pod(role)["spec"]["containers"][0]["command"]
                    .as_array()
                    .map(Vec::len),
                Some(5)
            );
        }
        let labels = &pod(Role::Server)["metadata"]["labels"];
        assert_eq!(
            service(2, 7)["spec"]["selector"],
            json!({ NAME: labels[NAME] })
        );
    }
}
