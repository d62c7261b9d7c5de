//! Opening what should be a regular file, and may be anything.
//!
//! `open(2)` of a FIFO waits for a writer, and that of a symbolic link opens what it names.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use nix::libc;

/// The treatment of a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// The file it names is opened.
    Follow,
    /// It is an error.
    Refuse,
}

/// Opens a regular file for reading; never waits. Anything else is [`io::ErrorKind::InvalidData`].
pub(crate) fn open(path: &Path, links: Links) -> io::Result<File> {
    let flags = match links {
        Links::Follow => libc::O_NONBLOCK,
        Links::Refuse => libc::O_NONBLOCK | libc::O_NOFOLLOW,
    };
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        // A symbolic link, or a socket.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO)) => {
            return Err(irregular());
        }
        file => file?,
    };
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(irregular())
    }
}

fn irregular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a regular file")
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    #[test]
    fn only_a_regular_file_is_opened_and_nothing_is_waited_for() {
        let scratch = tempfile::tempdir().expect("a directory");
        let at = |name: &str| scratch.path().join(name);
        std::fs::write(at("file"), "text").expect("written");
        symlink(at("file"), at("link")).expect("linked");
        mkfifo(&at("fifo"), Mode::S_IRWXU).expect("made");
        let _socket = UnixListener::bind(at("socket")).expect("bound");
        for (name, links, expected) in [
            ("file", Links::Refuse, None),
            ("link", Links::Follow, None),
            ("link", Links::Refuse, Some(io::ErrorKind::InvalidData)),
            ("fifo", Links::Follow, Some(io::ErrorKind::InvalidData)),
            ("socket", Links::Follow, Some(io::ErrorKind::InvalidData)),
            (".", Links::Follow, Some(io::ErrorKind::InvalidData)),
            ("absent", Links::Refuse, Some(io::ErrorKind::NotFound)),
        ] {
            assert_eq!(
                open(&at(name), links).err().map(|error| error.kind()),
                expected,
                "{name} {links:?}"
            );
        }
    }
}
