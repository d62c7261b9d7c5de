//! This node's place in a VPC, and the keys of its role, from the metadata of the instance.
//!
//! Each item is read with a token of the service, which an instance in hardened mode requires.

use std::net::IpAddr;

use flannel_host::secret::Secret;
use jiff::Timestamp;
use serde::Deserialize;

use super::words::WORDS;
use crate::{
    error::CloudError,
    http::Http,
    instance_metadata::{InstanceMetadata, TokenHeaders},
    keys::{ApiKeys, RoleItem},
    secret_json,
    variable::variable,
};

/// The service of every instance.
const METADATA: &str = "http://100.100.100.200";
const METADATA_VARIABLE: &str = "FLANNEL_ALI_METADATA_URL";
const TOKEN: TokenHeaders = TokenHeaders {
    lifetime: "x-aliyun-ecs-metadata-token-ttl-seconds",
    token: "x-aliyun-ecs-metadata-token",
};

/// The RAM role.
pub(super) const ROLE: RoleItem = RoleItem {
    roles: "ram/security-credentials/",
    read: read_keys,
    words: &WORDS,
};

/// This node's place in a VPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AliPlace {
    /// The instance, to which routes lead.
    pub(super) instance: String,
    /// The subnet (VSwitch) of the VPC.
    pub(super) vswitch: String,
}

/// The keys of a role, as the metadata has them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RamKeys {
    access_key_id: String,
    access_key_secret: Secret,
    security_token: Secret,
    expiration: Timestamp,
}

/// The service that the environment names, or that of every instance.
pub(super) fn service(http: Http) -> InstanceMetadata {
    let base = variable(METADATA_VARIABLE);
    InstanceMetadata::new(
        http,
        base.as_deref().unwrap_or(METADATA),
        &WORDS,
        Some(&TOKEN),
    )
}

/// The place of the instance, if one of its interfaces has an address.
pub(super) async fn place_of(
    metadata: &InstanceMetadata,
    address: IpAddr,
) -> Result<AliPlace, CloudError> {
    for interface in metadata.interfaces().await? {
        // An array of JSON.
        let addresses = metadata
            .item(&format!("{interface}/private-ipv4s"))
            .await?
            .unwrap_or_default();
        let addresses: Vec<IpAddr> = serde_json::from_str(&addresses).unwrap_or_default();
        if addresses.contains(&address) {
            let vswitch = metadata
                .required(&format!("{interface}/vswitch-id"))
                .await?;
            return Ok(AliPlace {
                instance: metadata.required("instance-id").await?,
                vswitch,
            });
        }
    }
    Err(CloudError::NoInterface(address))
}

fn read_keys(text: &str) -> Result<(ApiKeys, Timestamp), String> {
    let RamKeys {
        access_key_id: id,
        access_key_secret: secret,
        security_token,
        expiration,
    } = secret_json::read(text)?;
    Ok((
        ApiKeys {
            id,
            secret,
            token: Some(security_token),
        },
        expiration,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_role_are_read_with_their_end() {
        let text = r#"{"AccessKeyId":"STS.1","AccessKeySecret":"very-secret","Expiration":"2021-03-12T23:00:47Z",
            "SecurityToken":"of-a-role","LastUpdated":"2021-03-12T17:00:47Z","Code":"Success"}"#;
        let (keys, end) = read_keys(text).expect("readable");
        let expected = ApiKeys {
            id: "STS.1".to_owned(),
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
