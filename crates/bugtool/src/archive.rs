//! The archive: a compressed tar file with one folder, on a disk or on standard output.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, IsTerminal as _, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use flannel_host::clock::unix_now;
use flate2::{Compression, write::GzEncoder};
use tar::{Builder, Header};

/// Names that are tried before the command gives up.
const MOST: u32 = 100;

/// The place of an archive, and the name of the folder in it.
#[derive(Clone, Debug)]
pub struct Destination {
    folder: String,
    path: PathBuf,
    /// The name may be changed: the user gave none.
    is_free: bool,
    /// Seconds since 1970 UTC.
    now: u64,
}

impl Destination {
    /// A name of this beginning and the time; in this directory unless a path is given.
    pub fn new(beginning: &str, path: Option<&Path>) -> Self {
        let now = unix_now();
        let folder = format!("{beginning}-{now}");
        let is_free = path.is_none();
        let path = path.map_or_else(|| PathBuf::from(format!("{folder}.tar.gz")), Path::to_owned);
        Self {
            folder,
            path,
            is_free,
            now,
        }
    }

    /// Returns true if the archive goes to standard output.
    pub fn is_stdout(&self) -> bool {
        self.path.as_os_str() == "-"
    }

    fn open(&mut self) -> io::Result<Box<dyn Write>> {
        if !self.is_stdout() {
            return Ok(Box::new(self.create()?));
        }
        let stdout = io::stdout();
        if stdout.is_terminal() {
            return Err(io::Error::other(
                "it is a terminal, and the archive is binary",
            ));
        }
        Ok(Box::new(stdout))
    }

    /// Creates a new file, for its owner only. What has the name is left as it is, a symbolic link
    /// too, which another user may have placed where the name can be guessed (`O_EXCL`, open(2)).
    /// If the name was not chosen by the user, another one is taken.
    fn create(&mut self) -> io::Result<File> {
        let mut number = 0;
        loop {
            let result = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&self.path);
            match result {
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists
                        && self.is_free
                        && number < MOST =>
                {
                    number += 1;
                    self.path = PathBuf::from(format!("{}-{number}.tar.gz", self.folder));
                }
                result => return result,
            }
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_stdout() {
            f.write_str("standard output")
        } else {
            self.path.display().fmt(f)
        }
    }
}

/// An archive that is being written.
pub struct Archive {
    builder: Builder<GzEncoder<Box<dyn Write>>>,
    folder: String,
    now: u64,
}

impl Archive {
    /// An empty one.
    pub fn create(destination: &mut Destination) -> io::Result<Self> {
        let builder = Builder::new(GzEncoder::new(destination.open()?, Compression::default()));
        Ok(Self {
            builder,
            folder: destination.folder.clone(),
            now: destination.now,
        })
    }

    /// Adds a file.
    pub fn append(&mut self, file: &str, content: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.now);
        self.builder
            .append_data(&mut header, format!("{}/{file}", self.folder), content)
    }

    /// Writes the end.
    pub fn finish(self) -> io::Result<()> {
        self.builder.into_inner()?.finish()?.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

    #[test]
    fn an_archive_is_a_new_file_whatever_has_its_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let target = dir.path().join("target");
        fs::write(&target, "precious").expect("written");
        let beginning = dir.path().join("bug").display().to_string();
        let mut destination = Destination::new(&beginning, None);
        symlink(&target, &destination.path).expect("linked");
        let taken = destination.path.clone();
        Archive::create(&mut destination)
            .expect("another name")
            .finish()
            .expect("written");
        assert!(
            destination.path != taken && destination.path.to_string_lossy().ends_with("-1.tar.gz")
        );
        let mode = fs::metadata(&destination.path)
            .expect("metadata")
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o600);

        // A name that the user chose is not changed.
        for path in [&taken, &target] {
            let error = Archive::create(&mut Destination::new(&beginning, Some(path)))
                .err()
                .expect("refused");
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(fs::read_to_string(&target).expect("there"), "precious");
    }
}
