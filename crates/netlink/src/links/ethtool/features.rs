//! The offload features of a device.

use std::collections::BTreeSet;

/// The offload features of a device, by the names that `ethtool -k` shows behind its tabs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceFeatures {
    /// Features that can be switched on this device.
    pub changeable: BTreeSet<String>,
    /// Features that the driver or the operator asks for. One that depends on another may be off
    /// all the same.
    pub wanted: BTreeSet<String>,
}

impl DeviceFeatures {
    /// Returns `None` for a feature that the device does not have, or cannot switch.
    pub fn is_wanted(&self, feature: &str) -> Option<bool> {
        self.changeable
            .contains(feature)
            .then(|| self.wanted.contains(feature))
    }
}
