//! Reports of tests that could not run on this machine.

use std::io::{self, Write as _};

/// Says that `what` did not run, and `why`. The caller returns after it; no test passes in silence.
///
/// Twice, because the test harness keeps one of them from the reader: standard error is always
/// seen, and what is printed is kept with the test, where `cargo xtask test` counts it as skipped.
pub fn not_run(what: &str, why: &str) {
    let line = format!("NOT RUN: {what}: {why}");
    println!("{line}");
    // A missing reader must not make the test fail.
    drop(writeln!(io::stderr(), "{line}"));
}
