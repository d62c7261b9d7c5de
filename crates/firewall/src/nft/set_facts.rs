//! The facts of a set or map that rules which refer to it depend on.

use std::time::Duration;

use crate::model::HostRule;

/// The facts of a set that a rule which refers to it depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SetFacts {
    /// The bytes of a key.
    pub(super) key_length: u32,
    /// First and last values of an anonymous set; `None` for another, which may change.
    pub(super) values: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    /// The parts that every look-up adds to a rule, and the chains it leads to.
    pub(super) sum: HostRule,
    /// The timeout of elements.
    pub(super) timeout: Option<Duration>,
    /// `NFT_OBJECT_*` of a map of objects.
    pub(super) object_kind: u32,
}

/// The sets of a table.
pub(super) trait Sets {
    /// Returns the facts of a set; the default of one that does not exist.
    fn facts(&mut self, name: &str) -> SetFacts;
}
