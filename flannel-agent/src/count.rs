//! A number that one task raises and others read.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// How often something happened since the process began. Clones are the same count.
#[derive(Clone, Debug, Default)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    /// Once more.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// So far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
