//! The BPF programs of this node on their way into the kernel.

use std::{collections::BTreeMap, future::pending, sync::Arc};

use flannel_backends::{Backend, PodNetwork};
use flannel_host::family::Family;
use flannel_reconcile::Bpf;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{agent::bpf, options::RunOptions};

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
        let (options, backend, networks) = (options.clone(), Arc::clone(backend), networks.clone());
        Self::Loading(spawn_blocking(move || bpf::open(&options, backend.as_ref(), &networks)))
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
        let Self::Loading(task) = self else { return pending().await };
        let result = task.await.unwrap_or_else(|error| Err(format!("loading the BPF programs: {error}")));
        let (state, bpf) = match result {
            Ok(bpf) => (Self::Loaded, Some(bpf)),
            Err(reason) => (Self::Absent(reason), None),
        };
        *self = state;
        bpf
    }
}
