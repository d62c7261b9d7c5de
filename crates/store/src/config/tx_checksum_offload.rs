//! `Backend.TxChecksumOffload`, which flannel ignores: it decides if inner checksums are left to
//! the network card.

use std::fmt;

use super::{
    error::{ConfigMistake, Result},
    gojson::Fields,
};

const KEY: &str = "TxChecksumOffload";
const EXPECTED: &str = "\"auto\", true or \"on\", false or \"off\"";

/// The one that computes the TCP and UDP checksums of pods' packets that enter a vxlan tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxChecksumOffload {
    /// The network card, until trials show that such packets are lost on the way.
    #[default]
    Auto,
    /// The network card.
    On,
    /// The kernel, before it adds the outer headers.
    Off,
}

impl TxChecksumOffload {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::On, Self::Off];

    /// Its name, in every input and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }

    /// The value of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.name() == name)
    }
}

impl fmt::Display for TxChecksumOffload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Flannel's other switches of this object are booleans, so these are read too.
pub(super) fn parse(fields: &Fields) -> Result<TxChecksumOffload> {
    if let Ok(Some(is_on)) = fields.value::<bool>(KEY) {
        return Ok(if is_on {
            TxChecksumOffload::On
        } else {
            TxChecksumOffload::Off
        });
    }
    match fields.expect::<String>(KEY, EXPECTED)?.as_deref() {
        None | Some("") => Ok(TxChecksumOffload::Auto),
        Some(name) => TxChecksumOffload::of_name(name)
            .ok_or_else(|| -> ConfigMistake { fields.bad_value(KEY, EXPECTED) }),
    }
}
