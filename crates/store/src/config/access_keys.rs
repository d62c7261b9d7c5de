//! The keys of an account of a cloud, in the `Backend` object.

use flannel_host::secret::Secret;

use super::{
    error::{ConfigMistake, Result},
    gojson::Fields,
};

pub(super) const ACCESS_KEYS: &[&str] = &["AccessKeyID", "AccessKeySecret"];

/// The keys of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessKeys {
    /// Its identifier.
    pub id: String,
    /// The secret.
    pub secret: Secret,
}

/// Reads them. As in flannel, one without the other counts as none. A mistake shows no value: it
/// may be the secret, in the wrong place.
pub(super) fn parse(fields: &Fields) -> Result<Option<AccessKeys>> {
    let text = |key: &'static str| {
        let bad = |_shows_it| ConfigMistake::BadSecret {
            key,
            expected: "a text",
        };
        Ok(fields
            .expect::<String>(key, "a text")
            .map_err(bad)?
            .filter(|text| !text.is_empty()))
    };
    let (id, secret) = (text("AccessKeyID")?, text("AccessKeySecret")?);
    Ok(id.zip(secret).map(|(id, secret)| AccessKeys {
        id,
        secret: secret.as_str().into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::{BackendConfig, NetworkConfig};
    use super::{ACCESS_KEYS, AccessKeys};

    fn read(more: &str, family: &str) -> Result<NetworkConfig, String> {
        let text = format!(
            r#"{{"Network":"10.5.0.0/16",{family}"Backend":{{"Type":"Tencent-VPC"{more}}}}}"#
        );
        NetworkConfig::parse(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn both_keys_are_read_and_the_secret_is_not_shown() {
        let keys = AccessKeys {
            id: "AKID1".to_owned(),
            secret: "hunter2".into(),
        };
        for (more, expected) in [
            ("", None),
            (r#","AccessKeyID":"AKID1""#, None),
            (r#","AccessKeyID":"","AccessKeySecret":"hunter2""#, None),
            (
                r#","accesskeyid":"AKID1","AccessKeySecret":"hunter2""#,
                Some(keys),
            ),
        ] {
            let config = read(more, "").expect(more);
            assert_eq!(
                (&config.backend, &config.warnings[..]),
                (&BackendConfig::TencentVpc(expected), &[][..]),
                "{more}"
            );
            assert!(!format!("{config:?}").contains("hunter2"));
        }
    }

    #[test]
    fn a_mistake_shows_no_value() {
        for key in ACCESS_KEYS {
            let error = read(&format!(r#","{key}":["hunter2"]"#), "").expect_err("no text");
            assert!(
                error.contains(&format!(
                    "{key} in the network configuration cannot be read, expected a text"
                )),
                "{error}"
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = read("", r#""EnableIPv6":true,"IPv6Network":"fd00::/48","#).expect_err("IPv6");
        assert!(
            error.contains("Backend.Type tencent-vpc carries IPv4 alone; set EnableIPv6 to false"),
            "{error}"
        );
    }
}
