//! The active mode of a check. Pure.
//!
//! The mode requested at run time (pinned) takes precedence over the flag. While the known peers
//! may be incomplete, no packet is refused: `enforce` is lowered to `audit`.

use std::fmt;

use flannel_common::abi::guard::{Checks, GuardMode};

/// The default modes. A packet that comes from no peer could not be answered either. A peer,
/// however, may have reasons to send other inner sources: packets it routes for others and does not
/// masquerade.
pub const DEFAULT: Checks<GuardMode> = Checks {
    outer: GuardMode::Enforce,
    inner: GuardMode::Audit,
};

/// The reason why the programs may not know all peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncertainty {
    /// Changes do not arrive: nodes may have joined or moved without our knowledge.
    StoreNotInSync,
    /// Not every peer is in the maps yet.
    PeersPending,
}

impl fmt::Display for Uncertainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StoreNotInSync => "the store is not in sync, so peers may be unknown",
            Self::PeersPending => "not every peer is in the maps yet",
        })
    }
}

/// Returns the active mode and the requested one.
pub(super) fn decide(
    choice: Option<GuardMode>,
    flag: GuardMode,
    uncertainty: Option<Uncertainty>,
) -> (GuardMode, GuardMode) {
    let wanted = choice.unwrap_or(flag);
    let most = if uncertainty.is_some() {
        GuardMode::Audit
    } else {
        GuardMode::Enforce
    };
    (wanted.min(most), wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use GuardMode::{Audit, Enforce, Off};

    #[test]
    fn the_choice_comes_before_the_flag() {
        assert_eq!(decide(None, Enforce, None), (Enforce, Enforce));
        assert_eq!(decide(Some(Off), Enforce, None), (Off, Off));
        assert_eq!(decide(Some(Enforce), Off, None), (Enforce, Enforce));
    }

    #[test]
    fn nothing_is_refused_while_peers_may_be_unknown() {
        for uncertainty in [Uncertainty::StoreNotInSync, Uncertainty::PeersPending].map(Some) {
            assert_eq!(decide(None, Enforce, uncertainty), (Audit, Enforce));
            assert_eq!(decide(Some(Enforce), Off, uncertainty), (Audit, Enforce));
            assert_eq!(decide(None, Audit, uncertainty), (Audit, Audit));
            assert_eq!(decide(None, Off, uncertainty), (Off, Off));
        }
    }
}
