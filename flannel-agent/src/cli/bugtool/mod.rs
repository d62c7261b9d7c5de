//! `flannel-agent bugtool`: everything a bug report needs, in one archive, and nothing that is
//! secret.
//!
//! Each piece is a file; what could not be had is in `errors.txt`, with the reason. Time and size
//! are bounded. The environment, kubeconfigs, keys and the leases of others in the store are not
//! even looked at; what is written goes through [`redact`].

pub(super) mod archive;
mod collect;
mod redact;

use std::{io, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use flannel_host::error_chain::chain;
use nix::sys::utsname::uname;

use self::{
    archive::{Archive, Destination},
    collect::Piece,
    redact::redacted,
};
use super::{PinOptions, StateOptions};

/// The most of one piece that is kept, in bytes: what is cut off says so.
const PIECE_MAX: usize = 8 << 20;

/// The archive to write, and the paths of the agent's state and pins.
#[derive(Debug, Args)]
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
    let host = uname().map_or_else(|_| "node".to_owned(), |name| name.nodename().to_string_lossy().into_owned());
    let destination = Destination::new(&format!("flannel-bugtool-{host}"), options.output.as_deref());
    let failed = || format!("cannot write to {destination}; choose another place with -o");
    let archive = Archive::create(&destination).with_context(failed)?;
    let pieces = collect::pieces(options).await;
    let (files, errors) = write(archive, pieces).with_context(failed)?;
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

/// Writes the archive: how many files there are in it, and how many could not be had.
fn write(mut archive: Archive, pieces: Vec<Piece>) -> io::Result<(usize, usize)> {
    let mut append = |file: &str, text: &str| archive.append(file, redacted(text).as_bytes());
    let (mut files, mut errors) = (0, Vec::new());
    for (file, text) in pieces {
        match text {
            Ok(text) => {
                append(&file, &cut(text))?;
                files += 1;
            }
            Err(error) => errors.push(format!("{file}: {}\n", chain(error.as_ref()))),
        }
    }
    append("errors.txt", &errors.concat())?;
    archive.finish()?;
    Ok((files + 1, errors.len()))
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
