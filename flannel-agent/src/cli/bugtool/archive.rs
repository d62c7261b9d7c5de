//! The archive: a compressed tar file with one folder, on a disk or on standard output.

use std::{
    fmt,
    fs::OpenOptions,
    io::{self, IsTerminal as _, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use tar::{Builder, Header};

use crate::cli::now;

/// The place of an archive, and the name of the folder in it.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Destination {
    folder: String,
    path: PathBuf,
    /// Seconds since 1970 UTC.
    now: u64,
}

impl Destination {
    /// A name of this beginning and the time; in this directory unless a path is given.
    pub(in crate::cli) fn new(beginning: &str, path: Option<&Path>) -> Self {
        let now = now();
        let folder = format!("{beginning}-{now}");
        let path = path.map_or_else(|| PathBuf::from(format!("{folder}.tar.gz")), Path::to_owned);
        Self { folder, path, now }
    }

    /// Returns true if the archive goes to standard output.
    pub(in crate::cli) fn is_stdout(&self) -> bool {
        self.path.as_os_str() == "-"
    }

    fn open(&self) -> io::Result<Box<dyn Write>> {
        if !self.is_stdout() {
            // It is the administrator's to show around.
            let options = &mut OpenOptions::new();
            return Ok(Box::new(options.write(true).create(true).truncate(true).mode(0o600).open(&self.path)?));
        }
        let stdout = io::stdout();
        if stdout.is_terminal() {
            return Err(io::Error::other("it is a terminal, and the archive is binary"));
        }
        Ok(Box::new(stdout))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_stdout() { f.write_str("standard output") } else { self.path.display().fmt(f) }
    }
}

/// An archive that is being written.
pub(in crate::cli) struct Archive {
    builder: Builder<GzEncoder<Box<dyn Write>>>,
    folder: String,
    now: u64,
}

impl Archive {
    /// An empty one.
    pub(in crate::cli) fn create(destination: &Destination) -> io::Result<Self> {
        let builder = Builder::new(GzEncoder::new(destination.open()?, Compression::default()));
        Ok(Self { builder, folder: destination.folder.clone(), now: destination.now })
    }

    /// Adds a file.
    pub(in crate::cli) fn append(&mut self, file: &str, content: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.now);
        self.builder.append_data(&mut header, format!("{}/{file}", self.folder), content)
    }

    /// Writes the end.
    pub(in crate::cli) fn finish(self) -> io::Result<()> {
        self.builder.into_inner()?.finish()?.flush()
    }
}
