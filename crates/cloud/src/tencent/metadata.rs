//! This node's place in a VPC, and the keys of its role, from the metadata of the instance.

use std::net::IpAddr;

use flannel_host::secret::Secret;
use jiff::Timestamp;
use serde::Deserialize;

use super::words::WORDS;
use crate::{
    error::CloudError,
    http::Http,
    instance_metadata::InstanceMetadata,
    keys::{ApiKeys, RoleItem},
    secret_json,
    variable::variable,
};

/// The service of every instance.
const METADATA: &str = "http://metadata.tencentyun.com";
const METADATA_VARIABLE: &str = "FLANNEL_TENCENT_METADATA_URL";

/// The CAM role.
pub(super) const ROLE: RoleItem = RoleItem {
    roles: "cam/security-credentials/",
    read: read_keys,
    words: &WORDS,
};

/// This node's place in a VPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TencentPlace {
    /// The VPC.
    pub(super) vpc: String,
    /// The subnet of the VPC.
    pub(super) subnet: String,
    /// The address of the interface, to which routes lead.
    pub(super) address: String,
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

/// The service that the environment names, or that of every instance.
pub(super) fn service(http: Http) -> InstanceMetadata {
    let base = variable(METADATA_VARIABLE);
    InstanceMetadata::new(http, base.as_deref().unwrap_or(METADATA), &WORDS, None)
}

/// The place of the interface that has an address.
pub(super) async fn place_of(
    metadata: &InstanceMetadata,
    address: IpAddr,
) -> Result<TencentPlace, CloudError> {
    for interface in metadata.interfaces().await? {
        let path = |item: &str| format!("{interface}/{item}");
        // A directory, with a line for each address.
        let addresses = metadata
            .item(&path("local-ipv4s/"))
            .await?
            .unwrap_or_default();
        if addresses
            .lines()
            .any(|line| line.trim_end_matches('/').parse() == Ok(address))
        {
            let vpc = metadata.required(&path("vpc-id")).await?;
            let subnet = metadata.required(&path("subnet-id")).await?;
            return Ok(TencentPlace {
                vpc,
                subnet,
                address: address.to_string(),
            });
        }
    }
    Err(CloudError::NoInterface(address))
}

fn read_keys(text: &str) -> Result<(ApiKeys, Timestamp), String> {
    let CamKeys {
        tmp_secret_id: id,
        tmp_secret_key: secret,
        token,
        expired_time,
    } = secret_json::read(text)?;
    let end = Timestamp::from_second(expired_time).map_err(|error| error.to_string())?;
    Ok((
        ApiKeys {
            id,
            secret,
            token: Some(token),
        },
        end,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_role_are_read_with_their_end() {
        let text = r#"{"TmpSecretId":"AKID1","TmpSecretKey":"very-secret","ExpiredTime":1615590047,
            "Expiration":"2021-03-12T23:00:47Z","Token":"of-a-role","Code":"Success"}"#;
        let (keys, end) = read_keys(text).expect("readable");
        let expected = ApiKeys {
            id: "AKID1".to_owned(),
            secret: "very-secret".into(),
            token: Some("of-a-role".into()),
        };
        assert_eq!(
            (keys, end.to_string().as_str()),
            (expected, "2021-03-12T23:00:47Z")
        );
        let problem =
            read_keys(&text.replace("\"very-secret\"", "[\"very-secret\"]")).expect_err("no text");
        assert!(problem.starts_with("line 1, column "), "{problem}");
    }
}
