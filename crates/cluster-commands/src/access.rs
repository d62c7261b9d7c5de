//! The options of all commands that lead to the cluster, and to the agents in it.

use std::path::PathBuf;

use clap::Args;
use flannel_cluster::{
    client::{ApiAccess, ClusterClient},
    members::AgentPods,
};

/// The cluster, and the place of the agents in it.
#[derive(Clone, Debug, Args)]
pub struct ClusterAccess {
    /// Kubeconfig file; else KUBECONFIG, ~/.kube/config or the service account of the pod
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; else its current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of the agents' pods
    #[arg(short, long, value_name = "NAME", default_value = "kube-flannel")]
    namespace: String,
    /// Labels of the agents' pods
    #[arg(
        short = 'l',
        long,
        value_name = "LABELS",
        default_value = "app=flannel"
    )]
    selector: String,
}

impl ClusterAccess {
    /// The connection to the cluster.
    pub async fn client(&self) -> anyhow::Result<ClusterClient> {
        let access = ApiAccess {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
        };
        ClusterClient::new(&access).await
    }

    /// The agents' pods.
    pub fn pods(&self) -> AgentPods {
        AgentPods {
            namespace: self.namespace.clone(),
            selector: self.selector.clone(),
        }
    }
}
