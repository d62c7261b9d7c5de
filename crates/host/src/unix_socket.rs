//! Sockets of the agent in the file system.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::UnixListener,
    },
    path::Path,
};

use nix::sys::stat::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};

/// Opens a socket that does not block. Its mode decides who may connect, whatever the umask is;
/// `backlog` connections wait until they are accepted. A socket that exists is an earlier agent's
/// and is removed.
///
/// # Errors
/// A call failed, or there is another file, which stays.
pub fn listen(path: &Path, mode: u32, backlog: i32) -> io::Result<UnixListener> {
    remove_socket(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    // Linux gives the file the mode of the socket, less the umask (`unix_bind_bsd()`, 5.10 to 6.18;
    // net/unix/af_unix.c, Linux 6.1:
    // <https://elixir.bootlin.com/linux/v6.1/source/net/unix/af_unix.c>), so it never has a wider
    // one.
    fchmod(&socket, Mode::from_bits_truncate(mode))?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is a file that is not a socket",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_gives_way_and_the_new_one_has_its_mode() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("agent.sock");
        for mode in [0o600, 0o660] {
            let _listener = listen(&path, mode, 1).expect("a socket");
            let found = fs::metadata(&path)
                .expect("it is there")
                .permissions()
                .mode()
                & 0o777;
            assert_eq!(found, mode);
        }
    }

    #[test]
    fn another_file_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notes");
        fs::write(&path, "mine").expect("written");
        let error = listen(&path, 0o600, 1).expect_err("a file is there");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "mine");
    }
}
