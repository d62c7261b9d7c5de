//! Bits of a file's mode that concern other users.

/// Rights of group and others.
pub(super) const OF_OTHERS: u32 = 0o077;
/// The right of group and others to write.
pub(super) const WRITABLE_BY_OTHERS: u32 = 0o022;
/// A directory in which everybody may create files, such as `/tmp`.
pub(super) const STICKY: u32 = 0o1000;
