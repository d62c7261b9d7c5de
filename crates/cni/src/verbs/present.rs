//! The state of a call's pod.

use crate::{
    environment::Environment,
    state::{Key, StateDir},
};

/// The key under which there is a file for this call, ours or stock flannel's.
pub(super) fn present(state: &StateDir, environment: &Environment) -> Option<Key> {
    let key = Key::new(environment);
    let stock = key.stock();
    [key, stock].into_iter().find(|key| state.has(key))
}
