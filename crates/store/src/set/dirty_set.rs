//! The entries to judge again.

use std::{collections::BTreeSet, sync::Arc};

use ipnet::IpNet;

/// The entries to judge again.
#[derive(Clone, Debug)]
pub(super) enum DirtySet {
    /// Everything.
    All,
    /// The entries of these names, with the subnets they had; some may be gone.
    Some {
        names: BTreeSet<Arc<str>>,
        subnets: BTreeSet<IpNet>,
    },
}

impl DirtySet {
    pub(super) const fn nothing() -> Self {
        Self::Some {
            names: BTreeSet::new(),
            subnets: BTreeSet::new(),
        }
    }
}
