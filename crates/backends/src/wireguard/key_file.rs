//! The private key of this node, in a file: peers know the node by it, so it outlives the agent.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use flannel_host::{
    file::{self, FileError},
    wireguard_key::{BadKeyText, KEY_LEN, PublicKey, SecretKey},
};
use x25519_dalek::StaticSecret;

/// The private key in the state directory, where `--wireguard-key-file` does not say otherwise.
pub(crate) const KEY_FILE: &str = "wgkey";

/// The mode of the file: only root can read it.
const MODE: u32 = 0o400;

/// The keys of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireguardKeys {
    /// The private key.
    pub private: SecretKey,
    /// The public key, which belongs to it.
    pub public: PublicKey,
}

/// A key file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadKeyFile {
    /// It cannot be read or made.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its content is not a key.
    #[error(
        "the key file {} has no private key in it; delete it for a new one (peers follow the new \
         public key by our lease)",
        path.display()
    )]
    NoKey {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        error: BadKeyText,
    },
}

impl WireguardKeys {
    /// Reads the key file, or makes one with a new key.
    pub fn of_file(path: &Path) -> Result<Self, BadKeyFile> {
        match fs::read_to_string(path) {
            Ok(text) => {
                let key = text.parse().map_err(|error| BadKeyFile::NoKey {
                    path: path.to_owned(),
                    error,
                })?;
                Ok(Self::of(key))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let keys = Self::of(SecretKey(rand::random()));
                file::replace(path, keys.private.expose().as_bytes(), MODE)?;
                tracing::info!(file = %path.display(), key = %keys.public, "made a WireGuard key");
                Ok(keys)
            }
            Err(error) => Err(file::failed("read", path)(error).into()),
        }
    }

    fn of(private: SecretKey) -> Self {
        let private = SecretKey(clamped(private.0));
        let public = x25519_dalek::PublicKey::from(&StaticSecret::from(private.0));
        Self {
            private,
            public: PublicKey(public.to_bytes()),
        }
    }
}

/// As the kernel keeps it (`wg_noise_set_static_identity_private_key()` in
/// [drivers/net/wireguard/noise.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/drivers/net/wireguard/noise.c); [RFC 7748,
/// section 5](https://www.rfc-editor.org/rfc/rfc7748#section-5)), so that what is read back equals
/// what was set.
const fn clamped(mut bytes: [u8; KEY_LEN]) -> [u8; KEY_LEN] {
    bytes[0] &= 0b1111_1000;
    bytes[31] &= 0b0111_1111;
    bytes[31] |= 0b0100_0000;
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_read_after_that() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("flannel").join("wgkey");
        let made = WireguardKeys::of_file(&path).expect("a key");
        assert_eq!(
            fs::metadata(&path).expect("a file").permissions().mode() & 0o777,
            MODE
        );
        assert_eq!(WireguardKeys::of_file(&path).expect("the key"), made);
        assert_eq!(made.private.0, clamped(made.private.0));
        fs::remove_file(&path).expect("removed");
        assert_ne!(
            WireguardKeys::of_file(&path).expect("another key").public,
            made.public
        );
    }

    /// [RFC 7748, section 6.1](https://www.rfc-editor.org/rfc/rfc7748#section-6.1): Alice's keys.
    #[test]
    fn the_public_key_belongs_to_the_private_key() {
        let keys = WireguardKeys::of(
            "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo="
                .parse()
                .expect("a key"),
        );
        assert_eq!(
            keys.public.to_string(),
            "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
        );
    }

    #[test]
    fn what_is_no_key_stays_and_is_named_without_its_content() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("wgkey");
        fs::write(&path, "hunter2").expect("written");
        let error = WireguardKeys::of_file(&path)
            .expect_err("no key")
            .to_string();
        assert!(
            error.contains("wgkey has no private key") && !error.contains("hunter2"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).expect("still there"), "hunter2");
    }
}
