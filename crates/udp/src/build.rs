//! The identity of the program that runs.

use std::{fs, os::unix::fs::MetadataExt as _};

/// Returns a text that differs between two builds or installations of the program: its version, and
/// the file it was started from.
pub fn build() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let file = fs::metadata("/proc/self/exe");
    let file = file.map(|file| format!(" {}:{} {}", file.dev(), file.ino(), file.mtime()));
    format!("{version}{}", file.unwrap_or_default())
}
