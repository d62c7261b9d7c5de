//! The keys of requests: those of the network configuration or the environment, or of the
//! instance's CAM role, which are renewed before they end. They are never printed.

use flannel_host::secret::Secret;
use flannel_store::config::AccessKeys;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::{WORDS, metadata::TencentMetadata, signature::TencentKeys};
use crate::cloud::{error::CloudError, secret_json, variable::variable};

/// Keys that end sooner are read again.
const LEFT: SignedDuration = SignedDuration::from_mins(4);
/// The item of the metadata with the roles.
const ROLES: &str = "cam/security-credentials/";

/// The source of keys.
#[derive(Debug)]
pub(super) enum TencentKeySource {
    /// The configuration or the environment.
    Fixed(TencentKeys),
    /// The role of the instance, and its keys as last read, with their end.
    Role { metadata: Box<TencentMetadata>, last: Option<(TencentKeys, Timestamp)> },
}

/// The keys of a role, as the metadata has them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CamKeys {
    tmp_secret_id: String,
    tmp_secret_key: Secret,
    token: Secret,
    /// Seconds since 1970.
    expired_time: i64,
}

impl TencentKeySource {
    /// The source that counts: the configuration before the environment before the role.
    pub(super) fn new(configured: Option<&AccessKeys>, metadata: TencentMetadata) -> Self {
        let fixed = |id: String, secret: Secret| Self::Fixed(TencentKeys { id, secret, token: None });
        let of_environment = || variable("ACCESS_KEY_ID").zip(variable("ACCESS_KEY_SECRET"));
        match (configured, of_environment()) {
            (Some(AccessKeys { id, secret }), _) => fixed(id.clone(), secret.clone()),
            (None, Some((id, secret))) => fixed(id, secret.as_str().into()),
            (None, None) => Self::Role { metadata: Box::new(metadata), last: None },
        }
    }

    /// Returns usable keys.
    pub(super) async fn current(&mut self) -> Result<TencentKeys, CloudError> {
        let (metadata, last) = match self {
            Self::Fixed(keys) => return Ok(keys.clone()),
            Self::Role { metadata, last } => (metadata, last),
        };
        if let Some((keys, end)) = last
            && *end > Timestamp::now() + LEFT
        {
            return Ok(keys.clone());
        }
        let read = of_role(metadata).await?;
        Ok(last.insert(read).0.clone())
    }

    /// Reads them again for the next request: they were refused.
    pub(super) fn forget(&mut self) {
        if let Self::Role { last, .. } = self {
            *last = None;
        }
    }
}

async fn of_role(metadata: &TencentMetadata) -> Result<(TencentKeys, Timestamp), CloudError> {
    let roles = metadata.item(ROLES).await?.unwrap_or_default();
    let Some(role) = roles.lines().next() else { return Err(CloudError::NoCredentials(&WORDS)) };
    let text = metadata.required(&format!("{ROLES}{role}")).await?;
    parse(&text).map_err(|problem| CloudError::RoleCredentials { owner: format!("the role {role}"), problem })
}

fn parse(text: &str) -> Result<(TencentKeys, Timestamp), String> {
    let CamKeys { tmp_secret_id: id, tmp_secret_key: secret, token, expired_time } = secret_json::read(text)?;
    let end = Timestamp::from_second(expired_time).map_err(|error| error.to_string())?;
    Ok((TencentKeys { id, secret, token: Some(token) }, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_role_are_read_with_their_end() {
        let text = r#"{"TmpSecretId":"AKID1","TmpSecretKey":"very-secret","ExpiredTime":1615590047,
            "Expiration":"2021-03-12T23:00:47Z","Token":"of-a-role","Code":"Success"}"#;
        let (keys, end) = parse(text).expect("readable");
        let expected =
            TencentKeys { id: "AKID1".to_owned(), secret: "very-secret".into(), token: Some("of-a-role".into()) };
        assert_eq!((keys, end.to_string().as_str()), (expected, "2021-03-12T23:00:47Z"));
        let problem = parse(&text.replace("\"very-secret\"", "[\"very-secret\"]")).expect_err("no text");
        assert!(problem.starts_with("line 1, column "), "{problem}");
    }
}
