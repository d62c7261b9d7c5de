//! The parts that commands share: options, output formats, the answer with its exit code, and the
//! words for a node without an agent.

pub mod absent;
pub mod choice;
pub mod format;
pub mod prefix;
pub mod problem_lines;

use std::fmt;

pub use format::{Answer, Output, PinOptions, PrintOptions, StateOptions, WaitOptions, json};

/// A command without a result, in words. As any that fails it ends with [`NoResult::CODE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoResult(pub &'static str);

impl NoResult {
    /// The exit code.
    pub const CODE: u8 = 2;
}

impl fmt::Display for NoResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
