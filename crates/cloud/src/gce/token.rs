//! The access token of the instance's service account. It is never printed.

use std::time::{Duration, Instant};

use flannel_host::secret::Secret;
use serde::Deserialize;

use super::{place::GceMetadata, words::WORDS};
use crate::{error::CloudError, secret_json};

/// A token that ends sooner is read again. The metadata has a new one four minutes before.
const LEFT: Duration = Duration::from_mins(3);
/// The item of the metadata.
const ITEM: &str = "instance/service-accounts/default/token";

/// The source of tokens, and the token as last read.
#[derive(Debug)]
pub(super) struct TokenSource {
    metadata: GceMetadata,
    last: Option<(Secret, Instant)>,
}

/// A token, as the metadata has it.
#[derive(Debug, Deserialize)]
struct TokenAnswer {
    access_token: Secret,
    /// Seconds.
    expires_in: u64,
}

impl TokenSource {
    pub(super) const fn new(metadata: GceMetadata) -> Self {
        Self {
            metadata,
            last: None,
        }
    }

    /// Returns a usable token.
    pub(super) async fn current(&mut self) -> Result<Secret, CloudError> {
        if let Some((token, end)) = &self.last
            && *end > Instant::now() + LEFT
        {
            return Ok(token.clone());
        }
        let text = self
            .metadata
            .item(ITEM)
            .await?
            .ok_or(CloudError::NoCredentials(&WORDS))?;
        let answer = secret_json::read(&text).map_err(|problem| CloudError::RoleCredentials {
            owner: "the service account".to_owned(),
            problem,
        })?;
        let TokenAnswer {
            access_token,
            expires_in,
        } = answer;
        self.last = Some((
            access_token.clone(),
            Instant::now() + Duration::from_secs(expires_in),
        ));
        Ok(access_token)
    }

    /// Reads it again for the next request: it was refused.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_and_never_shown() {
        let text = r#"{"access_token":"ya29.very-secret","expires_in":3599,"token_type":"Bearer"}"#;
        let read: TokenAnswer = secret_json::read(text).expect("readable");
        assert_eq!(
            (read.access_token.reveal(), read.expires_in),
            ("ya29.very-secret", 3599)
        );
        assert!(!format!("{read:?}").contains("very-secret"));
        let problem = secret_json::read::<TokenAnswer>(r#"{"access_token":["ya29.very-secret"]}"#)
            .expect_err("no text");
        assert!(problem.starts_with("line 1, column "), "{problem}");
    }
}
