//! The state of checksum offload on one device.

use flannel_store::config::TxChecksumOffload;

use super::{checksum_alias::SwitchedOff, judge::TX_CHECKSUM};

/// The state of the feature of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Feature {
    /// `None` if the device cannot switch it, or if that is not known.
    pub(super) is_on: Option<bool>,
    /// By whom it was switched off, if that was an agent.
    pub(super) switched_off: Option<SwitchedOff>,
}

impl Feature {
    pub(super) fn reason(&self, setting: TxChecksumOffload) -> Option<String> {
        match self.is_on {
            Some(true) => None,
            None if setting == TxChecksumOffload::Auto => None,
            Some(false) => Some(self.switched_off.map_or_else(
                || format!("{TX_CHECKSUM} was switched off by another program"),
                |by| by.to_string(),
            )),
            None => Some(
                "the kernel does not show the features of the device, or cannot switch this one"
                    .to_owned(),
            ),
        }
    }
}
