//! An entry in an ordered set, by its name: a map would have the name twice.

use std::{borrow::Borrow, cmp::Ordering, sync::Arc};

use crate::Entry;

/// Equal to another if the names are.
#[derive(Clone, Debug)]
pub(super) struct Named(pub(super) Arc<Entry>);

impl Borrow<str> for Named {
    fn borrow(&self) -> &str {
        &self.0.name
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Named {}

impl PartialOrd for Named {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Named {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name.cmp(&other.0.name)
    }
}
