//! Lines for the runtime's log.

use std::io::{self, Write as _};

/// Writes a line to standard error, for the runtime's log. A failure to write is ignored.
pub(super) fn note(text: &str) {
    drop(writeln!(io::stderr(), "flannel: {text}"));
}
