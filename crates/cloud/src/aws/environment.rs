//! The variables by which every program finds Amazon's services. Pure.

use aws_credential_types::Credentials;

/// The metadata service of every instance.
const METADATA: &str = "http://169.254.169.254";

/// The settings of the environment. An empty variable is as if it were absent.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment {
    /// The address of EC2's API, in place of the region's own: `AWS_ENDPOINT_URL_EC2`, or
    /// `AWS_ENDPOINT_URL`.
    pub(super) endpoint: Option<String>,
    /// The region: `AWS_REGION`, or `AWS_DEFAULT_REGION`.
    pub(super) region: Option<String>,
    /// The address of the metadata service: `AWS_EC2_METADATA_SERVICE_ENDPOINT`.
    metadata: Option<String>,
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`. Its debug form has no
    /// secret.
    pub(super) credentials: Option<Credentials>,
}

impl Environment {
    /// Reads it.
    pub(super) fn read() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let address = |name: &str| variable(name).map(|url| url.trim_end_matches('/').to_owned());
        let keys = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY"));
        let token = variable("AWS_SESSION_TOKEN");
        Self {
            endpoint: address("AWS_ENDPOINT_URL_EC2").or_else(|| address("AWS_ENDPOINT_URL")),
            region: variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION")),
            metadata: address("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
            credentials: keys
                .map(|(id, secret)| Credentials::new(id, secret, token, None, "environment")),
        }
    }

    /// The address of the metadata service.
    pub(super) fn metadata(&self) -> &str {
        self.metadata.as_deref().unwrap_or(METADATA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Environment {
        Environment::of(|name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn variables_are_those_of_all_programs() {
        let none = of(&[("AWS_REGION", ""), ("AWS_ACCESS_KEY_ID", "AKID")]);
        assert_eq!(
            (
                none.endpoint.as_deref(),
                none.region.as_deref(),
                none.metadata()
            ),
            (None, None, METADATA)
        );
        assert!(none.credentials.is_none(), "one key of two");
        let all = of(&[
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
            ("AWS_ENDPOINT_URL_EC2", "http://127.0.0.1:2/"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
            ("AWS_REGION", "eu-central-1"),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:3/"),
            ("AWS_ACCESS_KEY_ID", "AKID"),
            ("AWS_SECRET_ACCESS_KEY", "very-secret"),
            ("AWS_SESSION_TOKEN", "of-a-session"),
        ]);
        assert_eq!(
            (all.endpoint.as_deref(), all.region.as_deref()),
            (Some("http://127.0.0.1:2"), Some("eu-central-1"))
        );
        assert_eq!(all.metadata(), "http://127.0.0.1:3");
        let keys = all.credentials.as_ref().expect("credentials");
        let parts = (
            keys.access_key_id(),
            keys.secret_access_key(),
            keys.session_token(),
        );
        assert_eq!(parts, ("AKID", "very-secret", Some("of-a-session")));
        let text = format!("{all:?}");
        assert!(
            !text.contains("very-secret") && !text.contains("of-a-session"),
            "{text}"
        );
    }
}
