//! A text that must not reach a log: a password, a token, a key of an API.

use std::{convert::Infallible, fmt, str::FromStr};

use serde::Deserialize;

/// A secret. Its `Debug` form is a placeholder, and it has no `Display`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::from("hunter2");
        assert_eq!(
            (secret.reveal(), format!("{secret:?}").as_str()),
            ("hunter2", "<redacted>")
        );
    }
}
