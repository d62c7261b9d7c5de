//! `flannel-agent bugtool`: everything a bug report needs, in one archive without secrets.
//!
//! Each piece is a file; `errors.txt` lists the pieces that could not be collected, with the
//! reason. Time and size are bounded. The command does not read the environment, kubeconfigs, keys
//! or the leases of other nodes in the store; everything it writes goes through [`redacted`].

mod collect;

use std::{io, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use flannel_bugtool::{Archive, Destination, PIECE_MAX, redacted};
use flannel_command::{PinOptions, StateOptions};
use flannel_host::error_chain::chain;
use nix::sys::utsname::uname;

/// The archive to write, and the paths of the agent's state and pins.
#[derive(Clone, Debug, Args)]
pub struct BugtoolOptions {
    /// The archive to write, `-` for standard output; one named by node and time in this directory
    /// if not given
    #[arg(short = 'o', long = "output", value_name = "FILE.tar.gz")]
    output: Option<PathBuf>,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// Runs the command; the text to print.
pub(super) async fn run(options: &BugtoolOptions) -> anyhow::Result<String> {
    let host = uname().map_or_else(
        |_| "node".to_owned(),
        |name| name.nodename().to_string_lossy().into_owned(),
    );
    let mut destination = Destination::new(
        &format!("flannel-bugtool-{host}"),
        options.output.as_deref(),
    );
    let archive = Archive::create(&mut destination);
    let failed = || format!("cannot write to {destination}; choose another place with -o");
    let mut writer = Writer {
        archive: archive.with_context(failed)?,
        files: 0,
        errors: Vec::new(),
    };
    collect::collect(options, &mut writer)
        .await
        .with_context(failed)?;
    let (files, errors) = writer.finish().with_context(failed)?;
    if destination.is_stdout() {
        // The reader has the archive, and errors.txt in it.
        return Ok(String::new());
    }
    let missing = if errors == 0 {
        String::new()
    } else {
        format!("; {errors} more are not to be had here, errors.txt says why")
    };
    Ok(format!("wrote {destination} with {files} files{missing}\n"))
}

/// Writes pieces as they come, so that one is in memory at a time.
struct Writer {
    archive: Archive,
    files: usize,
    errors: Vec<String>,
}

impl Writer {
    /// Writes a file, or notes why there is none.
    fn add(&mut self, file: &str, text: anyhow::Result<String>) -> io::Result<()> {
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
    fn finish(mut self) -> io::Result<(usize, usize)> {
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
