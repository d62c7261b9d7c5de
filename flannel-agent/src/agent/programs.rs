//! The BPF programs of this node on their way into the kernel.

use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};

use flannel_backend_api::{Backend, PodNetwork};
use flannel_host::family::Family;
use flannel_options::RunOptions;
use flannel_reconcile::Bpf;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};

use crate::agent::bpf;

/// The longest wait of a load for something else: tools may wait for a lock.
const WAIT: Duration = Duration::from_secs(10);

/// The state of the programs.
pub(super) enum Programs {
    /// A thread loads them. The kernel path does not need them, so routes are made during the load:
    /// at the first start on a node the kernel's check of the programs takes longer than all other
    /// steps.
    Loading(JoinHandle<Result<Bpf, String>>),
    /// They are there.
    Loaded,
    /// There are none, for this reason.
    Absent(String),
}

impl Programs {
    /// Starts to load what the backend needs.
    pub(super) fn load(
        options: &RunOptions,
        backend: &Arc<dyn Backend>,
        networks: &BTreeMap<Family, PodNetwork>,
    ) -> Self {
        Self::load_after(std::future::ready(()), options, backend, networks)
    }

    /// The same when `first` is over, or lasts too long.
    pub(super) fn load_after(
        first: impl Future<Output = ()> + Send + 'static,
        options: &RunOptions,
        backend: &Arc<dyn Backend>,
        networks: &BTreeMap<Family, PodNetwork>,
    ) -> Self {
        let (options, backend, networks) = (options.clone(), Arc::clone(backend), networks.clone());
        Self::Loading(tokio::spawn(async move {
            // Either way it is time to load.
            let _in_time = timeout(WAIT, first).await;
            let load = spawn_blocking(move || bpf::open(&options, backend.as_ref(), &networks));
            load.await
                .unwrap_or_else(|error| Err(format!("loading the BPF programs: {error}")))
        }))
    }

    /// Returns true until it is known if there are any.
    pub(super) const fn are_loading(&self) -> bool {
        matches!(self, Self::Loading(_))
    }

    /// Returns the reason why there are none, if there are none.
    pub(super) fn missing(&self) -> Option<&str> {
        match self {
            Self::Loading(_) => Some("the BPF programs are being loaded"),
            Self::Loaded => None,
            Self::Absent(reason) => Some(reason),
        }
    }

    /// Waits until they are loaded, or known to be absent; after that for ever.
    pub(super) async fn loaded(&mut self) -> Option<Bpf> {
        let Self::Loading(task) = self else {
            return pending().await;
        };
        let result = task
            .await
            .unwrap_or_else(|error| Err(format!("loading the BPF programs: {error}")));
        let (state, bpf) = match result {
            Ok(bpf) => (Self::Loaded, Some(bpf)),
            Err(reason) => (Self::Absent(reason), None),
        };
        *self = state;
        bpf
    }
}
