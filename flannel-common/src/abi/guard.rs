//! The guard: modes written by the agent and the CLI, violations written by the programs.
//!
//! There are two checks, each with its own mode. The outer check asks whether a tunnel packet comes
//! from a peer at all: whether its outer source is in `VTEPS`. The inner check asks whether the
//! source of a peer's packet is in the subnet of that peer. The programs look at [`GuardWord`] only
//! for packets with which something is wrong, so a good packet pays nothing in any mode.

use core::{
    fmt,
    mem::{align_of, size_of},
    str::FromStr,
};

use crate::{abi::reason::Reason, packet::addr::Mac};

/// Treatment of packets that fail a check. The numbers are part of the map layout; a greater one is
/// stricter.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GuardMode {
    /// They are counted by reason, and nothing else.
    Off = 0,
    /// As `Off`, and their sources are listed and logged.
    Audit = 1,
    /// As `Audit`, and they are dropped.
    Enforce = 2,
}

impl GuardMode {
    /// Every mode, the most lenient first.
    pub const ALL: [Self; 3] = [Self::Off, Self::Audit, Self::Enforce];

    /// The mode with this number, if there is one.
    #[inline(always)]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Off),
            1 => Some(Self::Audit),
            2 => Some(Self::Enforce),
            _ => None,
        }
    }

    /// The name used on the command line and in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Audit => "audit",
            Self::Enforce => "enforce",
        }
    }
}

impl fmt::Display for GuardMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no mode of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownGuardMode;

impl fmt::Display for UnknownGuardMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a mode of the guard; the modes are off, audit and enforce")
    }
}

impl core::error::Error for UnknownGuardMode {}

impl FromStr for GuardMode {
    type Err = UnknownGuardMode;

    fn from_str(text: &str) -> Result<Self, UnknownGuardMode> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or(UnknownGuardMode)
    }
}

/// One thing for each of the two checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks<T> {
    /// The check of the outer source.
    pub outer: T,
    /// The check of the inner source.
    pub inner: T,
}

/// The value of the `GUARD` map, so that a switch is one write: bits 0-7 the outer check's mode in
/// force, 8-15 the inner one's, 16-23 the operator's choice for the outer check (0 for none, else
/// the mode's number plus one), 24-31 for the inner.
///
/// Zero, what a new map holds, refuses nothing.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct GuardWord(pub u64);

impl GuardWord {
    /// A word from its parts.
    pub const fn new(in_force: Checks<GuardMode>, choice: Checks<Option<GuardMode>>) -> Self {
        let (outer, inner) = (in_force.outer as u64, in_force.inner as u64);
        Self(outer | inner << 8 | chosen(choice.outer) << 16 | chosen(choice.inner) << 24)
    }

    /// Returns the active modes. An unknown number reads as [`GuardMode::Off`].
    #[inline(always)]
    pub const fn in_force(self) -> Checks<GuardMode> {
        Checks {
            outer: in_force(self.0.to_le_bytes()[0]),
            inner: in_force(self.0.to_le_bytes()[1]),
        }
    }

    /// Returns the operator's choice at run time.
    pub const fn choice(self) -> Checks<Option<GuardMode>> {
        Checks {
            outer: choice(self.0.to_le_bytes()[2]),
            inner: choice(self.0.to_le_bytes()[3]),
        }
    }
}

#[inline(always)]
const fn in_force(number: u8) -> GuardMode {
    match GuardMode::from_number(number) {
        Some(mode) => mode,
        None => GuardMode::Off,
    }
}

const fn chosen(choice: Option<GuardMode>) -> u64 {
    match choice {
        Some(mode) => mode as u64 + 1,
        None => 0,
    }
}

const fn choice(number: u8) -> Option<GuardMode> {
    match number {
        0 => None,
        number => GuardMode::from_number(number - 1),
    }
}

impl fmt::Debug for GuardWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (choice {:?})", self.in_force(), self.choice())
    }
}

/// The key of `NAT_VTEPS`: the tunnel device of a peer whose packets may carry another outer source
/// than its public address, because a NAT stands between.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKey {
    /// The peer's `VtepMAC`, which is the inner Ethernet source of all its packets.
    pub mac: Mac,
    /// EtherType of the tunnel's family, network order.
    pub family: [u8; 2],
}

/// The value of `VIOLATIONS`: what the guard saw of packets from one outer source. Written by the
/// programs; two CPUs that count at once may lose a count.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Violation {
    /// Packets that failed a check.
    pub packets: u64,
    /// Those of them that were dropped.
    pub dropped: u64,
    /// The last of them, `CLOCK_MONOTONIC_COARSE`, nanoseconds.
    pub last_ns: u64,
    /// Its [`Reason`], by number.
    pub reason: u32,
    /// Zero.
    pub reserved: u32,
}

impl Violation {
    /// After one more packet.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, reason: Reason, dropped: bool, now_ns: u64) -> Self {
        Self {
            packets: self.packets + 1,
            dropped: self.dropped + dropped as u64,
            last_ns: now_ns,
            reason: reason as u32,
            reserved: 0,
        }
    }
}

const _: () = {
    assert!(size_of::<GuardWord>() == 8);
    assert!(size_of::<DeviceKey>() == 8 && align_of::<DeviceKey>() == 1);
    assert!(size_of::<Violation>() == 32 && align_of::<Violation>() == 8);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_gives_back_what_went_in() {
        for outer in GuardMode::ALL {
            for inner in GuardMode::ALL {
                for choice in [None, Some(outer), Some(inner)] {
                    let in_force = Checks { outer, inner };
                    let choice = Checks {
                        outer: choice,
                        inner: Some(inner),
                    };
                    let word = GuardWord::new(in_force, choice);
                    assert_eq!((word.in_force(), word.choice()), (in_force, choice));
                }
            }
        }
    }

    #[test]
    fn an_empty_map_and_an_unknown_number_refuse_nothing() {
        let off = Checks {
            outer: GuardMode::Off,
            inner: GuardMode::Off,
        };
        for word in [GuardWord::default(), GuardWord(0xffff)] {
            assert_eq!((word.in_force(), word.choice()), (off, Checks::default()));
        }
    }

    #[test]
    fn modes_are_read_by_the_name_they_print_and_grow_stricter() {
        for mode in GuardMode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert_eq!("on".parse::<GuardMode>(), Err(UnknownGuardMode));
        assert!(GuardMode::ALL.is_sorted());
    }
}
