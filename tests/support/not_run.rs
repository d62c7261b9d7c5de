//! Reports of tests that could not run on this machine.

use std::io::Write as _;

/// Says so twice, because the harness keeps one of them from the reader: standard error is always
/// seen, and what is printed stays with the test, where `cargo xtask test` counts it as skipped.
pub(crate) fn not_run(what: &str, why: &str) {
    let line = format!("NOT RUN: {what}: {why}");
    println!("{line}");
    writeln!(std::io::stderr(), "{line}").expect("standard error");
}
