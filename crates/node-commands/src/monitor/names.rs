//! The names of this node's pods, as a running agent knows them, and of Services, as the rules of
//! kube-proxy have them. Separate tasks ask for them: an agent or a tool that does not answer holds
//! no packet up.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use flannel_explain::service_names;
use flannel_observe::socket::ask_status;
use tokio::{
    sync::watch::{self, Receiver, Sender},
    time::{sleep, timeout},
};

/// Between two questions to the agent.
const PERIOD: Duration = Duration::from_secs(5);
/// Between two readings of the rules, which may be many.
const RULES_PERIOD: Duration = Duration::from_mins(1);
/// The longest wait for the first answer of each.
const PATIENCE: Duration = Duration::from_millis(200);

/// Names by address.
pub(super) type NamesByAddress = BTreeMap<IpAddr, String>;

/// The names of pods and of Services, as last asked for.
pub(super) struct FollowedNames {
    pub(super) pods: Receiver<NamesByAddress>,
    pub(super) services: Receiver<NamesByAddress>,
}

impl FollowedNames {
    /// Follows the names from now on; the first ones are there, if they can be had at once.
    pub(super) async fn follow(state_dir: PathBuf) -> Self {
        let (pod_names, pods) = watch::channel(NamesByAddress::new());
        let (names, services) = watch::channel(NamesByAddress::new());
        tokio::spawn(follow_pods(state_dir, pod_names));
        tokio::spawn(follow_services(names));
        let (pods, services) = tokio::join!(first(pods), first(services));
        Self { pods, services }
    }
}

async fn follow_pods(state_dir: PathBuf, names: Sender<NamesByAddress>) {
    while !names.is_closed() {
        if let Ok(status) = ask_status(&state_dir).await {
            names.send_replace(status.pod_names);
        }
        sleep(PERIOD).await;
    }
}

async fn follow_services(names: Sender<NamesByAddress>) {
    while !names.is_closed() {
        if let Some(now) = service_names().await {
            names.send_replace(now);
        }
        sleep(RULES_PERIOD).await;
    }
}

/// Waits for the first names. Those that are not there in time come later.
async fn first(mut names: Receiver<NamesByAddress>) -> Receiver<NamesByAddress> {
    drop(timeout(PATIENCE, names.changed()).await);
    names.mark_changed();
    names
}
