//! The archive, to which pieces go one by one, without secrets and not too long.

use std::io;

use flannel_bugtool::{Archive, PIECE_MAX, redacted};
use flannel_host::error_chain::chain;

/// Writes pieces as they come, so that one is in memory at a time.
pub(super) struct Writer {
    pub(super) archive: Archive,
    pub(super) files: usize,
    pub(super) errors: Vec<String>,
}

impl Writer {
    /// Writes a file, or notes why there is none.
    pub(super) fn add(&mut self, file: &str, text: anyhow::Result<String>) -> io::Result<()> {
        match text {
            Ok(text) => {
                self.archive.append(file, redacted(&cut(text)).as_bytes())?;
                self.files += 1;
            }
            Err(error) => self
                .errors
                .push(format!("{file}: {}\n", chain(error.as_ref()))),
        }
        Ok(())
    }

    /// Writes the end: how many files there are in the archive, and how many could not be had.
    pub(super) fn finish(mut self) -> io::Result<(usize, usize)> {
        self.archive
            .append("errors.txt", redacted(&self.errors.concat()).as_bytes())?;
        self.archive.finish()?;
        Ok((self.files + 1, self.errors.len()))
    }
}

/// Cuts a piece down to [`PIECE_MAX`] bytes, with a note at the end.
fn cut(mut text: String) -> String {
    if text.len() > PIECE_MAX {
        let mut end = PIECE_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("\n[cut off here]\n");
    }
    text
}
