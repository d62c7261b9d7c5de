//! The credentials of requests: those of the environment, or of the instance's role, which are
//! renewed before they end. They are never printed.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use jiff::Timestamp;
use serde::Deserialize;

use super::{metadata::Metadata, words::WORDS};
use crate::{error::CloudError, secret_json};

/// Credentials that end sooner are renewed. The metadata has new ones five minutes before.
const LEFT: Duration = Duration::from_mins(4);
/// The item of the metadata with the roles.
const ROLES: &str = "iam/security-credentials/";

/// The source of credentials.
#[derive(Debug)]
pub(super) enum CredentialSource {
    /// The environment.
    Fixed(Credentials),
    /// The role of the instance, and its credentials as last read.
    Role {
        metadata: Box<Metadata>,
        last: Option<Credentials>,
    },
}

/// The credentials of a role, as the metadata has them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleCredentials {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: Timestamp,
}

impl CredentialSource {
    /// Returns usable credentials.
    pub(super) async fn current(&mut self) -> Result<Credentials, CloudError> {
        let (metadata, last) = match self {
            Self::Fixed(credentials) => return Ok(credentials.clone()),
            Self::Role { metadata, last } => (metadata, last),
        };
        if let Some(credentials) = last
            .as_ref()
            .filter(|credentials| serves_for(credentials, LEFT))
        {
            return Ok(credentials.clone());
        }
        match of_role(metadata).await {
            Ok(credentials) => Ok(last.insert(credentials).clone()),
            // Those that there are may serve for the minutes they have left.
            Err(error) => last
                .clone()
                .filter(|old| serves_for(old, Duration::ZERO))
                .ok_or(error),
        }
    }

    /// Reads them again for the next request: they were refused.
    pub(super) fn forget(&mut self) {
        if let Self::Role { last, .. } = self {
            *last = None;
        }
    }
}

fn serves_for(credentials: &Credentials, time: Duration) -> bool {
    credentials
        .expiry()
        .is_none_or(|end| end > SystemTime::now() + time)
}

async fn of_role(metadata: &Metadata) -> Result<Credentials, CloudError> {
    let visit = metadata.visit().await?;
    let roles = visit.item(ROLES).await?.unwrap_or_default();
    let Some(role) = roles.lines().next() else {
        return Err(CloudError::NoCredentials(&WORDS));
    };
    let text = visit.required(&format!("{ROLES}{role}")).await?;
    parse(&text).map_err(|problem| CloudError::RoleCredentials {
        owner: format!("the role {role}"),
        problem,
    })
}

fn parse(text: &str) -> Result<Credentials, String> {
    let RoleCredentials {
        access_key_id,
        secret_access_key,
        token,
        expiration,
    } = secret_json::read(text)?;
    Ok(Credentials::new(
        access_key_id,
        secret_access_key,
        Some(token),
        Some(expiration.into()),
        "instance role",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(expiration: &str) -> String {
        format!(
            r#"{{"Code":"Success","LastUpdated":"2026-11-24T20:00:00Z","Type":"AWS-HMAC","AccessKeyId":"ASIA1",
                "SecretAccessKey":"very-secret","Token":"of-a-session","Expiration":"{expiration}"}}"#
        )
    }

    #[test]
    fn credentials_of_a_role_end() {
        let credentials = parse(&role("2026-11-25T02:00:00Z")).expect("readable");
        let parts = (
            credentials.access_key_id(),
            credentials.secret_access_key(),
            credentials.session_token(),
        );
        assert_eq!(parts, ("ASIA1", "very-secret", Some("of-a-session")));
        let end: Timestamp = "2026-11-25T02:00:00Z".parse().expect("a time");
        assert_eq!(credentials.expiry(), Some(end.into()));
        assert!(!serves_for(
            &parse(&role("2001-01-01T00:00:00Z")).expect("readable"),
            Duration::ZERO
        ));
        let soon = Timestamp::now() + Duration::from_mins(2);
        let soon = parse(&role(&soon.to_string())).expect("readable");
        assert_eq!(
            [Duration::ZERO, LEFT].map(|time| serves_for(&soon, time)),
            [true, false]
        );
    }

    #[test]
    fn an_error_quotes_no_credentials() {
        let text = role("2026-11-25T02:00:00Z")
            .replace("\"AKID\"", "7")
            .replace(":\"ASIA1\"", ":[\"ASIA1\"]");
        let problem = parse(&text).expect_err("no text");
        assert!(problem.starts_with("line 1, column "), "{problem}");
    }
}
