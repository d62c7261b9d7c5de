//! A number that one task raises and others read.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The number of times something happened since the process began. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    /// Adds one.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds this many.
    pub fn add_many(&self, times: u64) {
        self.0.fetch_add(times, Ordering::Relaxed);
    }

    /// Returns the count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
