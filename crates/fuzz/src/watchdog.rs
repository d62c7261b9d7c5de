//! Ends the process when an input takes too long.

use std::{
    path::Path,
    process,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use crate::{corpus, repetition::repeat};

/// The time limit of one input.
const LIMIT: Duration = Duration::from_secs(10);

/// The input that runs, with its start.
type Running = Mutex<Option<(Instant, Vec<u8>)>>;

/// A watchdog of one run. Its thread ends soon after it.
#[derive(Debug)]
pub(crate) struct Watchdog(Arc<Running>);

impl Watchdog {
    /// Starts its thread.
    pub(crate) fn start(name: &str, directory: &Path) -> Self {
        let running: Arc<Running> = Arc::default();
        let (watched, name, directory) = (
            Arc::downgrade(&running),
            name.to_owned(),
            directory.to_owned(),
        );
        thread::spawn(move || watch(&watched, &name, &directory));
        Self(running)
    }

    pub(crate) fn begin(&self, input: &[u8]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Instant::now(), input.to_vec()));
    }

    pub(crate) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn watch(running: &Weak<Running>, name: &str, directory: &Path) {
    while let Some(running) = running.upgrade() {
        let now = running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some((start, input)) = now
            && start.elapsed() > LIMIT
        {
            let path = corpus::write(directory, "slow-", &input);
            eprintln!(
                "fuzz {name}: an input takes longer than {} s",
                LIMIT.as_secs()
            );
            eprintln!("{}", repeat(name, &path));
            process::abort();
        }
        drop(running);
        thread::sleep(Duration::from_secs(1));
    }
}
