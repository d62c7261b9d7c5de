//! Facts of an element's options.

/// Facts known of an element's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementFacts<'a> {
    /// It has none that matter.
    None,
    /// The reader is not shown them.
    Hidden,
    /// Words of a command line.
    Words(&'a [&'a str]),
    /// Flags of TCP: which are looked at, and what they are compared with.
    Flags(FlagTest),
    /// Bits of a field that are looked at.
    Mask(u64),
    /// Seconds after which what is written goes away; none for never.
    Timeout(Option<u64>),
    /// States of connections that match.
    States(&'a [&'a str]),
}

/// A test of TCP flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagTest {
    /// `flags & mask == value`, or the opposite.
    Equal { mask: u8, value: u8, negated: bool },
    /// One of these is set, or the opposite.
    Any { mask: u8, negated: bool },
    /// Any other use.
    Other,
}
