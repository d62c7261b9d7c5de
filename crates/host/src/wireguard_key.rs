//! Keys of WireGuard: 32 bytes, written as base64 in leases and files.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Bytes of every kind of key.
pub const KEY_LEN: usize = 32;

/// The error of a text that is not a key. The text is not kept: it may be most of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a key of WireGuard: expected 32 bytes in base64, which are 44 characters")]
pub struct BadKeyText;

/// A public key, which identifies a node to its peers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; KEY_LEN]);

/// A private or a preshared key. No output ever shows it but the file and the device it is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretKey(pub [u8; KEY_LEN]);

fn decode(text: &str) -> Result<[u8; KEY_LEN], BadKeyText> {
    let bytes = STANDARD.decode(text.trim()).or(Err(BadKeyText))?;
    bytes.try_into().or(Err(BadKeyText))
}

impl FromStr for PublicKey {
    type Err = BadKeyText;

    fn from_str(text: &str) -> Result<Self, BadKeyText> {
        decode(text).map(Self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for SecretKey {
    type Err = BadKeyText;

    fn from_str(text: &str) -> Result<Self, BadKeyText> {
        decode(text).map(Self)
    }
}

impl SecretKey {
    /// The base64 text, for the key's file.
    pub fn expose(&self) -> String {
        STANDARD.encode(self.0)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";

    #[test]
    fn keys_are_base64_and_secrets_are_not_shown() {
        let key: PublicKey = TEXT.parse().expect("a key");
        assert_eq!(
            (key.0[0], key.0[31], key.to_string().as_str()),
            (1, 32, TEXT)
        );
        let secret: SecretKey = format!("{TEXT}\n").parse().expect("a key");
        assert_eq!(
            (secret.expose().as_str(), format!("{secret:?}").as_str()),
            (TEXT, "(secret)")
        );
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in [
            "",
            "AQID",
            &TEXT[1..],
            &format!("A{TEXT}"),
            "?QIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=",
        ] {
            assert_eq!(text.parse::<PublicKey>(), Err(BadKeyText), "{text:?}");
        }
    }
}
