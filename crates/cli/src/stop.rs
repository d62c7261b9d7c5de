//! The end of the process without a command: help, version and wrong usage.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
};

use clap::FromArgMatches;

/// The exit code of wrong usage: `EX_USAGE` of sysexits.h.
pub(super) const USAGE: u8 = 64;

/// The process ends here, with a text to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The exit code: 0 for help and version, 64 for wrong usage.
    pub code: u8,
    /// True if the text belongs on standard error.
    pub to_stderr: bool,
    /// The text, with its final newline.
    pub text: String,
}

impl Stop {
    pub(super) fn usage(text: &str) -> Self {
        Self {
            code: USAGE,
            to_stderr: true,
            text: text.to_owned(),
        }
    }

    /// Prints the text and yields the exit code, which a reader that has gone away does not change.
    pub fn report(&self) -> ExitCode {
        let text = self.text.as_bytes();
        let _ = if self.to_stderr {
            io::stderr().write_all(text)
        } else {
            io::stdout().write_all(text)
        };
        ExitCode::from(self.code)
    }
}

/// Parses arguments (the first is the program) by a description.
pub(super) fn parsed<T: FromArgMatches>(
    mut command: clap::Command,
    args: Vec<OsString>,
) -> Result<T, Stop> {
    let matches = command.try_get_matches_from_mut(args);
    let value = matches.and_then(|mut matches| T::from_arg_matches_mut(&mut matches));
    value.map_err(|error| from_clap(&error.format(&mut command)))
}

fn from_clap(error: &clap::Error) -> Stop {
    Stop {
        code: if error.use_stderr() { USAGE } else { 0 },
        to_stderr: error.use_stderr(),
        text: error.to_string(),
    }
}
