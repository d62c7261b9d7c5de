//! The datapath mode: one 64-bit word in the `MODE` map, so that a switch is one write.
//!
//! The word is written by the agent and by the CLI (also while the agent is dead) and read by every
//! program for every packet. It carries the active mode, the operator's choice, and a generation
//! that grows with every write.

use core::{fmt, str::FromStr};

/// Mode of the datapath. The numbers are part of the map layout.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Stock flannel: routes, neighbours, FDB and the vxlan device.
    Kernel = 0,
    /// As `Kernel`, and `to_tunnel` encapsulates from the peer map.
    Encap = 1,
    /// As `Encap`, and known flows bypass the stack.
    Fast = 2,
}

impl Mode {
    /// The mode with this number, if there is one.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Kernel),
            1 => Some(Self::Encap),
            2 => Some(Self::Fast),
            _ => None,
        }
    }

    /// The name used on the command line and in net-conf.json.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Encap => "encap",
            Self::Fast => "fast",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMode;

impl fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a datapath mode; the modes are kernel, encap and fast")
    }
}

impl core::error::Error for UnknownMode {}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        [Self::Kernel, Self::Encap, Self::Fast]
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or(UnknownMode)
    }
}

/// The value of the `MODE` map: bits 0-7 the active mode, bits 8-15 the operator's choice (0 for
/// none, else the mode's number plus one), bits 16-31 the epoch, bits 32-63 the generation.
///
/// Zero, what a new map holds, reads as mode `kernel`, no choice, generation 0: programs that run
/// before the agent has decided anything leave every packet to the kernel.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ModeWord(pub u64);

impl ModeWord {
    /// A word from its parts, of epoch 0.
    pub const fn new(mode: Mode, choice: Option<Mode>, generation: u32) -> Self {
        let choice = match choice {
            Some(mode) => mode as u64 + 1,
            None => 0,
        };
        Self(mode as u64 | choice << 8 | (generation as u64) << 32)
    }

    /// Returns the active mode. An unknown number reads as `Kernel`, which is always correct.
    #[inline(always)]
    pub const fn mode(self) -> Mode {
        match Mode::from_number(self.0.to_le_bytes()[0]) {
            Some(mode) => mode,
            None => Mode::Kernel,
        }
    }

    /// Returns the operator's choice at run time.
    pub const fn choice(self) -> Option<Mode> {
        match self.0.to_le_bytes()[1] {
            0 => None,
            number => Mode::from_number(number - 1),
        }
    }

    /// Grows by one with every write.
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Grows by one with every change of the mode, and whenever packets of known flows may have
    /// bypassed the programs.
    #[expect(clippy::cast_possible_truncation, reason = "sixteen bits of the word")]
    #[inline(always)]
    pub const fn epoch(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The next word: another mode or choice, the generation one further. Another mode begins an
    /// epoch.
    #[must_use]
    pub const fn next(self, mode: Mode, choice: Option<Mode>) -> Self {
        let epoch = if mode as u8 == self.mode() as u8 {
            self.epoch()
        } else {
            self.epoch().wrapping_add(1)
        };
        Self(Self::new(mode, choice, self.generation().wrapping_add(1)).0 | (epoch as u64) << 16)
    }

    /// The next word of the same mode and choice, in the next epoch.
    #[must_use]
    pub const fn next_epoch(self) -> Self {
        let next = self.next(self.mode(), self.choice());
        Self(next.0 & !0xffff_0000 | (self.epoch().wrapping_add(1) as u64) << 16)
    }
}

impl fmt::Debug for ModeWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (choice {:?}, generation {})",
            self.mode(),
            self.choice(),
            self.generation()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_gives_back_what_went_in() {
        for mode in [Mode::Kernel, Mode::Encap, Mode::Fast] {
            for choice in [
                None,
                Some(Mode::Kernel),
                Some(Mode::Encap),
                Some(Mode::Fast),
            ] {
                let word = ModeWord::new(mode, choice, u32::MAX);
                assert_eq!(
                    (word.mode(), word.choice(), word.generation()),
                    (mode, choice, u32::MAX)
                );
                assert_eq!(word.next(mode, choice).generation(), 0);
            }
        }
    }

    #[test]
    fn another_mode_begins_an_epoch_and_another_generation_does_not() {
        let word = ModeWord::new(Mode::Fast, Some(Mode::Fast), 7);
        let bumped = word.next(Mode::Fast, word.choice());
        assert_eq!((bumped.epoch(), bumped.generation()), (0, 8));
        let switched = bumped.next(Mode::Kernel, None).next(Mode::Fast, None);
        assert_eq!(
            (switched.mode(), switched.epoch(), switched.generation()),
            (Mode::Fast, 2, 10)
        );
        let mut last = switched;
        for _ in 0..u16::MAX {
            last = last.next_epoch();
        }
        assert_eq!(
            (last.mode(), last.epoch(), last.generation()),
            (Mode::Fast, 1, 10 + 65_535)
        );
    }

    #[test]
    fn an_empty_map_and_an_unknown_number_mean_kernel() {
        assert_eq!(ModeWord::default().mode(), Mode::Kernel);
        assert_eq!(ModeWord::default().choice(), None);
        assert_eq!(ModeWord(0xff).mode(), Mode::Kernel);
    }

    #[test]
    fn modes_are_read_by_the_name_they_print() {
        for mode in [Mode::Kernel, Mode::Encap, Mode::Fast] {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert_eq!("Encap".parse::<Mode>(), Err(UnknownMode));
    }
}
