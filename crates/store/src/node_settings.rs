//! Settings of a single node, which an operator writes into the store.
//!
//! A setting is more specific than the flags, which are the same on all nodes of a DaemonSet, so it
//! takes precedence over them. Only a value that cannot be used is refused, and what it would
//! replace stays active.

use std::fmt;

use flannel_common::abi::{
    guard::{Checks, GuardMode},
    mode::Mode,
};

/// The choice of the datapath mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeSetting {
    /// The network configuration decides (`auto`).
    FollowConfig,
    /// This mode.
    Mode(Mode),
}

/// The meaning of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// Names or local addresses of the external interface, tried in order.
    Iface(Vec<String>),
    /// Bytes of the outer packet.
    Mtu(u16),
    /// The datapath mode.
    Mode(ModeSetting),
    /// The mode of the outer check of the guard.
    GuardOuter(GuardMode),
    /// The mode of its inner check.
    GuardInner(GuardMode),
}

impl SettingValue {
    /// Returns true if the value is read once, when the agent starts.
    pub const fn is_for_start(&self) -> bool {
        matches!(self, Self::Iface(_) | Self::Mtu(_))
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSetting {
    /// The name in the store: an annotation.
    pub name: String,
    /// The value as written, cut to a length that can be shown.
    pub text: String,
    /// The value, or the reason why it is refused.
    pub value: Result<SettingValue, String>,
    /// The settings that count while it is refused.
    pub instead: &'static str,
}

impl NodeSetting {
    /// Refuses the setting for this reason.
    pub fn refuse(&mut self, reason: impl Into<String>) {
        self.value = Err(reason.into());
    }

    /// Returns the reason why a refused setting is not active, and what applies in its place.
    pub fn refusal(&self) -> Option<String> {
        let reason = self.value.as_ref().err()?;
        Some(format!(
            "refused: {reason}; {} until it is corrected or removed",
            self.instead
        ))
    }
}

impl fmt::Display for NodeSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.text)
    }
}

/// The settings of this node, each at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSettings(pub Vec<NodeSetting>);

impl NodeSettings {
    fn find<'a, T>(&'a self, get: impl Fn(&'a SettingValue) -> Option<T>) -> Option<T> {
        self.0
            .iter()
            .filter_map(|setting| setting.value.as_ref().ok())
            .find_map(get)
    }

    /// The external interface; `None` if no setting chooses it.
    pub fn iface(&self) -> Option<&[String]> {
        self.find(|value| {
            if let SettingValue::Iface(names) = value {
                Some(names.as_slice())
            } else {
                None
            }
        })
    }

    /// The bytes of the outer packet.
    pub fn mtu(&self) -> Option<u16> {
        self.find(|value| {
            if let SettingValue::Mtu(mtu) = value {
                Some(*mtu)
            } else {
                None
            }
        })
    }

    /// The choice of the datapath mode.
    pub fn mode(&self) -> Option<ModeSetting> {
        self.find(|value| {
            if let SettingValue::Mode(mode) = value {
                Some(*mode)
            } else {
                None
            }
        })
    }

    /// The modes of the guard: those of `flags` where no setting has another.
    pub fn guard(&self, flags: Checks<GuardMode>) -> Checks<GuardMode> {
        let outer = self.find(|value| {
            if let SettingValue::GuardOuter(mode) = value {
                Some(*mode)
            } else {
                None
            }
        });
        let inner = self.find(|value| {
            if let SettingValue::GuardInner(mode) = value {
                Some(*mode)
            } else {
                None
            }
        });
        Checks {
            outer: outer.unwrap_or(flags.outer),
            inner: inner.unwrap_or(flags.inner),
        }
    }
}
