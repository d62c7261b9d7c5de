//! The alias of a tunnel device whose checksum offload an agent switched off. Pure.
//!
//! `ip link` shows it to an engineer, and the next agent reads it.

use std::{fmt, net::IpAddr};

const PREFIX: &str = "flannel-agent: checksum offload is off, ";
const BY_SETTING: &str = "by its setting";
const BY_TRIAL: &str = "lost to peer ";
const UPLINK: &str = " by interface ";

/// The reason why an agent switched checksum offload off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchedOff {
    /// `TxChecksumOffload` or `--tx-checksum-offload`.
    BySetting,
    /// Trials: this peer answered only packets whose checksums were computed before.
    ByTrial {
        /// The public address of the peer.
        peer: IpAddr,
        /// The interface index of the external interface at that time.
        uplink: u32,
    },
}

impl SwitchedOff {
    /// The alias that says so.
    pub(super) fn to_alias(self) -> String {
        match self {
            Self::BySetting => format!("{PREFIX}{BY_SETTING}"),
            Self::ByTrial { peer, uplink } => format!("{PREFIX}{BY_TRIAL}{peer}{UPLINK}{uplink}"),
        }
    }

    /// Reads an alias; `None` for one of another program.
    pub(super) fn of_alias(alias: &str) -> Option<Self> {
        let reason = alias.strip_prefix(PREFIX)?;
        if reason == BY_SETTING {
            return Some(Self::BySetting);
        }
        let (peer, uplink) = reason.strip_prefix(BY_TRIAL)?.split_once(UPLINK)?;
        Some(Self::ByTrial {
            peer: peer.parse().ok()?,
            uplink: uplink.parse().ok()?,
        })
    }
}

impl fmt::Display for SwitchedOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BySetting => f.write_str("TxChecksumOffload is off"),
            Self::ByTrial { peer, .. } => write!(
                f,
                "packets with offloaded inner checksums are lost on the way to {peer}, and others \
                 arrive: the network card may break them"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_read_back() {
        let v6 = "2001:db8::7".parse().expect("IPv6");
        for by in [
            SwitchedOff::BySetting,
            SwitchedOff::ByTrial {
                peer: v6,
                uplink: 12,
            },
        ] {
            assert_eq!(SwitchedOff::of_alias(&by.to_alias()), Some(by));
        }
        for other in [
            "",
            "uplink to rack 7",
            "flannel-agent: checksum offload is off, lost to peer x by interface 1",
        ] {
            assert_eq!(SwitchedOff::of_alias(other), None);
        }
    }
}
