//! The files of the process: its own configuration and socket, in a directory that only root can
//! read, so that a charon of the host and its configuration stay as they are.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use flannel_host::file::{self, FileError};
use ipnet::Ipv4Net;

/// Plugins of strongSwan: algorithms, the kernel's interface, sockets, and the control interface.
/// One that a build does not have is left out. None that changes more of the host than
/// associations: no routes, no resolver, no scripts.
const PLUGINS: &str = "aes aesni sha1 sha2 md5 hmac kdf random nonce drbg gmp openssl gcm ccm ctr \
    cmac xcbc chapoly \
                       curve25519 kernel-netlink socket-default vici";
/// Mode of the files.
const MODE: u32 = 0o600;
/// The directory, in the state directory.
const DIRECTORY: &str = "charon";
const CONFIGURATION: &str = "strongswan.conf";
const SOCKET: &str = "vici.sock";
const NETWORK: &str = "network";

/// Returns the directory of the process.
pub fn directory(state_dir: &Path) -> PathBuf {
    state_dir.join(DIRECTORY)
}

/// Returns the path of the control socket in it.
pub(super) fn socket(directory: &Path) -> PathBuf {
    directory.join(SOCKET)
}

/// Returns the pod network of the agent that wrote the files, by which its policies are known.
pub fn recorded_network(state_dir: &Path) -> Option<Ipv4Net> {
    fs::read_to_string(directory(state_dir).join(NETWORK))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// The files, which are there.
#[derive(Clone, Debug)]
pub(super) struct CharonFiles {
    /// Its configuration.
    pub(super) configuration: PathBuf,
    /// Its control socket.
    pub(super) socket: PathBuf,
}

impl CharonFiles {
    /// Writes them.
    pub(super) fn write(state_dir: &Path, network: Ipv4Net) -> Result<Self, FileError> {
        let directory = directory(state_dir);
        let (configuration, socket) = (directory.join(CONFIGURATION), socket(&directory));
        fs::create_dir_all(&directory).map_err(file::failed("make", &directory))?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))
            .map_err(file::failed("close", &directory))?;
        file::replace(&configuration, text(&socket).as_bytes(), MODE)?;
        file::replace(
            &directory.join(NETWORK),
            format!("{network}\n").as_bytes(),
            MODE,
        )?;
        Ok(Self {
            configuration,
            socket,
        })
    }
}

/// Level 0 logs associations that come and go, to the agent's own log. Secrets are in none but
/// level 4.
fn text(socket: &Path) -> String {
    format!(
        "# Written by flannel-agent for its own charon.\n\
         charon {{\n\
         \x20 load = {PLUGINS}\n\
         \x20 install_routes = no\n\
         \x20 install_virtual_ip = no\n\
         \x20 plugins {{\n\
         \x20   vici {{\n\
         \x20     socket = unix://{}\n\
         \x20   }}\n\
         \x20 }}\n\
         \x20 filelog {{\n\
         \x20   agent {{\n\
         \x20     path = stderr\n\
         \x20     default = 0\n\
         \x20   }}\n\
         \x20 }}\n\
         }}\n",
        socket.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_roots_alone_and_the_network_is_read_again() {
        let scratch = tempfile::tempdir().expect("a directory");
        let network = "10.5.0.0/16".parse().expect("a network");
        assert_eq!(recorded_network(scratch.path()), None);
        let files = CharonFiles::write(scratch.path(), network).expect("written");
        assert_eq!(recorded_network(scratch.path()), Some(network));
        let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
        assert_eq!(
            (mode(&directory(scratch.path())), mode(&files.configuration)),
            (0o700, 0o600)
        );
        let text = fs::read_to_string(&files.configuration).expect("a file");
        assert!(
            text.contains(&format!("socket = unix://{}", files.socket.display())),
            "{text}"
        );
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
