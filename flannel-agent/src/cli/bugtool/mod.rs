//! `flannel-agent bugtool`: everything a bug report needs, in one archive, and nothing that is
//! secret.
//!
//! Each piece is a file; what could not be had is in `errors.txt`, with the reason. Time and size
//! are bounded. The environment, kubeconfigs, keys and the leases of others in the store are not
//! even looked at; what is written goes through [`redact`].

mod collect;
mod redact;

use std::{
    fs::OpenOptions,
    io::{self, IsTerminal as _, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::Context as _;
use clap::Args;
use flannel_host::error_chain::chain;
use flate2::{Compression, write::GzEncoder};
use nix::sys::utsname::uname;
use tar::{Builder, Header};

use self::{collect::Piece, redact::redacted};
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
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let host = uname().map_or_else(|_| "node".to_owned(), |name| name.nodename().to_string_lossy().into_owned());
    let name = format!("flannel-bugtool-{host}-{now}");
    let path = options.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
    let to_stdout = path.as_os_str() == "-";
    let place = if to_stdout { "standard output".to_owned() } else { path.display().to_string() };
    let failed = || format!("cannot write to {place}; choose another place with -o");
    let file = if to_stdout { stdout() } else { create(&path) }.with_context(failed)?;
    let pieces = collect::pieces(options).await;
    let (files, errors) = write(file, &name, now, pieces).with_context(failed)?;
    if to_stdout {
        // The reader has the archive, and errors.txt in it.
        return Ok(String::new());
    }
    let missing = if errors == 0 {
        String::new()
    } else {
        format!("; {errors} more are not to be had here, errors.txt says why")
    };
    Ok(format!("wrote {place} with {files} files{missing}\n"))
}

fn create(path: &Path) -> io::Result<Box<dyn Write>> {
    // It is the administrator's to show around.
    Ok(Box::new(OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?))
}

fn stdout() -> io::Result<Box<dyn Write>> {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        return Err(io::Error::other("it is a terminal, and the archive is binary"));
    }
    Ok(Box::new(stdout))
}

/// Writes the archive: how many files there are in it, and how many could not be had.
fn write(file: impl Write, name: &str, now: u64, pieces: Vec<Piece>) -> io::Result<(usize, usize)> {
    let mut archive = Builder::new(GzEncoder::new(file, Compression::default()));
    let mut append = |file: &str, text: &str| {
        let text = redacted(text);
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now);
        archive.append_data(&mut header, format!("{name}/{file}"), text.as_bytes())
    };
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
    archive.into_inner()?.finish()?.flush()?;
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
