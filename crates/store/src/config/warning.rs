//! Settings that a network configuration may hold and that have no effect.

use std::fmt;

use flannel_host::excerpt::excerpt;

use super::gojson::Fields;

/// Something in the configuration that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigWarning {
    /// A key neither flannel nor we know. Probably misspelt.
    UnknownKey {
        /// The object it stands in: empty for the top level, or `Backend`.
        parent: &'static str,
        /// The key as written.
        key: String,
    },
    /// A key that flannel reads only on Windows nodes.
    WindowsOnly {
        /// The key.
        key: &'static str,
    },
    /// A key of a family that is off.
    FamilyOff {
        /// The key.
        key: &'static str,
        /// The key that turns the family on.
        switch: &'static str,
    },
    /// `Backend.Datapath` of the backend `alloc`.
    NoDatapath,
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { parent: "", key } => {
                write!(
                    f,
                    "the network configuration has the unknown key {:?}; it is ignored",
                    excerpt(key)
                )
            }
            Self::UnknownKey { parent, key } => {
                let key = excerpt(key);
                write!(
                    f,
                    "{parent} in the network configuration has the unknown key {key:?}; it is \
                     ignored"
                )
            }
            Self::WindowsOnly { key } => write!(
                f,
                "Backend.{key} applies to Windows nodes only; it is ignored"
            ),
            Self::FamilyOff { key, switch } => {
                write!(
                    f,
                    "{key} in the network configuration has no effect while {switch} is false"
                )
            }
            Self::NoDatapath => {
                f.write_str("Backend.Datapath has no effect: the backend alloc carries no packets")
            }
        }
    }
}

/// The keys that are none of `known`.
pub(super) fn unknown_keys<'a>(
    parent: &'static str,
    fields: &'a Fields,
    known: &'a [&str],
) -> impl Iterator<Item = ConfigWarning> {
    fields
        .unknown(known)
        .map(move |key| ConfigWarning::UnknownKey {
            parent,
            key: key.to_owned(),
        })
}
