//! Options for reaching the API server and for finding our Node.

use std::{fmt, path::PathBuf};

use super::prefix::AnnotationPrefix;

/// The operator's settings for Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeOptions {
    /// Overrides the server of the kubeconfig file; alone, it is used without credentials.
    pub api_url: Option<String>,
    /// A kubeconfig file; without it and without a URL, the pod's own service account.
    pub kubeconfig: Option<PathBuf>,
    /// The prefix of our annotations.
    pub prefix: AnnotationPrefix,
    /// The network configuration, a file.
    pub net_config: PathBuf,
    /// Makes the node's `NetworkUnavailable` condition follow the state of its pod network.
    pub set_network_unavailable: bool,
    /// Pods of this node are followed for their annotation.
    pub pod_opt_out: bool,
}

impl KubeOptions {
    /// Returns the location of the API server in words, for status and messages.
    pub fn api(&self) -> String {
        match (&self.api_url, &self.kubeconfig) {
            (Some(url), _) => url.clone(),
            (None, Some(path)) => format!("the server of {}", path.display()),
            (None, None) => "the cluster's own API server".to_owned(),
        }
    }
}

/// The identity of our Node, or of the pod by which to find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeIdentity {
    /// The Node of this name.
    Node(String),
    /// The one this pod runs on.
    Pod {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
    },
}

/// The environment does not say which Node we are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoIdentity {
    /// It says nothing.
    #[error(
        "neither NODE_NAME nor both of POD_NAME and POD_NAMESPACE are set; set NODE_NAME to the \
         name of this node, in \
         a pod by fieldRef spec.nodeName"
    )]
    Unset,
    /// It says what cannot be a name.
    #[error("{variable} is {value:?}, which is no name of a Kubernetes object; correct it")]
    BadName {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
}

impl NodeIdentity {
    /// Reads the environment. Empty variables are unset ones.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Result<Self, NoIdentity> {
        let set = |name| match variable(name).filter(|value| !value.is_empty()) {
            Some(value) if !is_name(&value) => Err(NoIdentity::BadName {
                variable: name,
                value,
            }),
            value => Ok(value),
        };
        match (set("NODE_NAME")?, set("POD_NAMESPACE")?, set("POD_NAME")?) {
            (Some(name), _, _) => Ok(Self::Node(name)),
            (None, Some(namespace), Some(name)) => Ok(Self::Pod { namespace, name }),
            _ => Err(NoIdentity::Unset),
        }
    }
}

/// Names go into paths of requests as they are.
fn is_name(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
        && !text.starts_with('.')
}

impl fmt::Display for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "node {name}"),
            Self::Pod { namespace, name } => write!(f, "the node of pod {namespace}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_s_name_counts_before_the_pod_s() {
        let identity = |set: &[(&str, &str)]| {
            let lookup = |name: &str| {
                set.iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| (*value).to_owned())
            };
            NodeIdentity::from_env(lookup).map(|identity| identity.to_string())
        };
        let pod = [("POD_NAME", "p"), ("POD_NAMESPACE", "ns")];
        assert_eq!(
            identity(&[&[("NODE_NAME", "a")][..], &pod].concat()),
            Ok("node a".to_owned())
        );
        assert_eq!(
            identity(&[&[("NODE_NAME", "")][..], &pod].concat()),
            Ok("the node of pod ns/p".to_owned())
        );
        assert_eq!(identity(&pod[..1]), Err(NoIdentity::Unset));
        let bad = NoIdentity::BadName {
            variable: "NODE_NAME",
            value: "../pods".to_owned(),
        };
        assert_eq!(identity(&[("NODE_NAME", "../pods")]), Err(bad));
    }
}
