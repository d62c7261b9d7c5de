//! The names of this node's pods, as a running agent knows them. They are asked for by a task of
//! its own: an agent that does not answer holds no packet up.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use tokio::{
    sync::watch::{self, Receiver},
    time::{sleep, timeout},
};

use crate::observe::socket::ask_status;

/// Between two questions.
const PERIOD: Duration = Duration::from_secs(5);
/// The longest wait for the first answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// Names by address.
pub(super) type PodNames = BTreeMap<IpAddr, String>;

/// Follows the names from now on; the first ones are there, if the agent answers at once.
pub(super) async fn follow(state_dir: PathBuf) -> Receiver<PodNames> {
    let (sender, mut receiver) = watch::channel(PodNames::new());
    tokio::spawn(async move {
        while !sender.is_closed() {
            if let Ok(status) = ask_status(&state_dir).await {
                sender.send_replace(status.pod_names);
            }
            sleep(PERIOD).await;
        }
    });
    // Without an answer in time, names come later.
    drop(timeout(PATIENCE, receiver.changed()).await);
    receiver.mark_changed();
    receiver
}
