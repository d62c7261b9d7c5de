//! The state of the tunnel process, for the status and the metrics.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use flannel_status::UdpStatus;
use flannel_udp::{Reply, Request, State, ask};

/// The time for an answer to who asks for the status.
const PATIENCE: Duration = Duration::from_millis(200);

/// The known state. Clones share it. Without the backend udp it is empty.
#[derive(Clone, Debug, Default)]
pub struct SharedUdpStatus(Arc<Mutex<Option<Entry>>>);

#[derive(Clone, Debug)]
struct Entry {
    control: PathBuf,
    last: UdpStatus,
}

impl SharedUdpStatus {
    /// Records the state of the process at this socket; `started` if the agent has just started it.
    pub fn set(&self, control: &Path, state: &State, started: bool) {
        self.change(control, |last| {
            last.starts += u64::from(started);
            apply(last, state);
        });
    }

    /// Records that the process does not run, and the reason.
    pub fn fail(&self, control: &Path, error: String) {
        self.change(control, |last| (last.pid, last.error) = (None, Some(error)));
    }

    fn change(&self, control: &Path, change: impl FnOnce(&mut UdpStatus)) {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = shared.get_or_insert_with(|| Entry {
            control: control.to_owned(),
            last: UdpStatus::default(),
        });
        change(&mut entry.last);
    }

    /// Asks the process for its state now; `None` where the backend is another. A process that does
    /// not answer has none.
    pub fn status(&self) -> Option<UdpStatus> {
        let Entry { control, mut last } = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()?;
        match ask(&control, &Request::State, PATIENCE) {
            Ok(Reply::State(state)) => apply(&mut last, &state),
            Ok(_) => {}
            Err(error) => {
                last.pid = None;
                last.error = last.error.or_else(|| Some(error.to_string()));
            }
        }
        Some(last)
    }
}

fn apply(status: &mut UdpStatus, state: &State) {
    status.pid = Some(state.pid);
    (status.port, status.counts, status.error) = (state.port, state.counts, None);
}
