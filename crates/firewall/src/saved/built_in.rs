//! Built-in chains.

use crate::model::ChainHook;

/// A hook by the name of a built-in chain.
pub(super) fn built_in(name: &str, nat: bool, drops: bool) -> ChainHook {
    ChainHook {
        at: name.to_ascii_lowercase(),
        nat,
        drops,
        devices: Vec::new(),
    }
}
