//! The parts of a bug report: the archive, the host's firewall rules, and the redaction of secrets.

mod archive;
mod redact;
pub mod rules;

pub use self::{
    archive::{Archive, Destination},
    redact::redacted,
};

/// The most of one piece that is kept, in bytes: what is cut off says so.
pub const PIECE_MAX: usize = 8 << 20;
