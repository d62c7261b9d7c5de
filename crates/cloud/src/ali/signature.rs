//! Requests of Alibaba's RPC API: a form in a POST, signed by HMAC-SHA1 (version 1.0). Pure.
//!
//! The signature has the time of the request, to fifteen minutes, and a number used once.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{Request, header::CONTENT_TYPE};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha1::Sha1;

use crate::{error::CloudError, keys::ApiKeys};

const API_VERSION: &str = "2016-04-28";
const FORM: &str = "application/x-www-form-urlencoded";
/// The characters that are written otherwise, by [RFC 3986, section
/// 2.3](https://www.rfc-editor.org/rfc/rfc3986#section-2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// The requests that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AliAction {
    DescribeVSwitchAttributes,
    DescribeRouteEntryList,
    CreateRouteEntry,
    DeleteRouteEntry,
}

impl AliAction {
    /// Its name, which is also that of its permission, behind `vpc:`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::DescribeVSwitchAttributes => "DescribeVSwitchAttributes",
            Self::DescribeRouteEntryList => "DescribeRouteEntryList",
            Self::CreateRouteEntry => "CreateRouteEntry",
            Self::DeleteRouteEntry => "DeleteRouteEntry",
        }
    }
}

/// The API to which requests go.
#[derive(Clone, Debug)]
pub(super) struct AliApi {
    /// Its address, without a path.
    pub(super) endpoint: String,
    pub(super) region: String,
}

/// Returns a signed request; `nonce` is a text that no other request has.
pub(super) fn signed(
    api: &AliApi,
    keys: &ApiKeys,
    (at, nonce): (Timestamp, &str),
    action: AliAction,
    parameters: &[(&str, &str)],
) -> Result<Request<String>, CloudError> {
    let time = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut all = vec![
        ("AccessKeyId", keys.id.as_str()),
        ("Action", action.name()),
        ("Format", "JSON"),
        ("RegionId", &api.region),
        ("SignatureMethod", "HMAC-SHA1"),
        ("SignatureNonce", nonce),
        ("SignatureVersion", "1.0"),
        ("Timestamp", &time),
        ("Version", API_VERSION),
    ];
    all.extend(
        keys.token
            .as_ref()
            .map(|token| ("SecurityToken", token.reveal())),
    );
    all.extend(parameters);
    let query = canonical(&all);
    let signature = signature("POST", &query, keys.secret.reveal());
    let body = format!("{query}&Signature={}", escape(&signature));
    let request = Request::post(format!("{}/", api.endpoint))
        .header(CONTENT_TYPE, FORM)
        .body(body);
    request.map_err(|error| CloudError::Unsigned {
        action: action.name(),
        problem: error.to_string(),
    })
}

/// The parameters in their order.
fn canonical(parameters: &[(&str, &str)]) -> String {
    let mut sorted: Vec<String> = parameters
        .iter()
        .map(|(name, value)| format!("{}={}", escape(name), escape(value)))
        .collect();
    sorted.sort();
    sorted.join("&")
}

fn signature(method: &str, query: &str, secret: &str) -> String {
    let mut mac =
        Hmac::<Sha1>::new_from_slice(format!("{secret}&").as_bytes()).expect("a key of any length");
    mac.update(format!("{method}&%2F&{}", escape(query)).as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Alibaba's documentation of the signature.
    #[test]
    fn the_published_example_has_the_published_signature() {
        let query = canonical(&[
            ("Timestamp", "2016-02-23T12:46:24Z"),
            ("Format", "XML"),
            ("AccessKeyId", "testid"),
            ("Action", "DescribeRegions"),
            ("SignatureMethod", "HMAC-SHA1"),
            ("SignatureNonce", "3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf"),
            ("Version", "2014-05-26"),
            ("SignatureVersion", "1.0"),
        ]);
        assert_eq!(
            signature("GET", &query, "testsecret"),
            "OLeaidS1JvxuMvnyHOwuJ+uX5qY="
        );
        assert_eq!(escape("a b*~-_./"), "a%20b%2A~-_.%2F");
    }

    #[test]
    fn a_request_is_a_signed_form() {
        let api = AliApi {
            endpoint: "https://vpc.cn-beijing.aliyuncs.com".to_owned(),
            region: "cn-beijing".to_owned(),
        };
        let keys = ApiKeys {
            id: "testid".to_owned(),
            secret: "testsecret".into(),
            token: Some("of-a-role".into()),
        };
        let at = Timestamp::from_second(1_456_231_584).expect("a time");
        let parameters = [("DestinationCidrBlock", "10.5.7.0/24")];
        let request = signed(
            &api,
            &keys,
            (at, "once"),
            AliAction::CreateRouteEntry,
            &parameters,
        )
        .expect("signed");
        let (query, signature) = request
            .body()
            .split_once("&Signature=")
            .expect("a signature");
        let expected = "AccessKeyId=testid&Action=CreateRouteEntry&\
            DestinationCidrBlock=10.5.7.0%2F24&Format=JSON&\
            RegionId=cn-beijing&SecurityToken=of-a-role&SignatureMethod=HMAC-SHA1&\
            SignatureNonce=once&\
            SignatureVersion=1.0&Timestamp=2016-02-23T12%3A46%3A24Z&Version=2016-04-28";
        assert_eq!(query, expected);
        assert!(
            signature.ends_with("%3D") && !request.body().contains("testsecret"),
            "{signature}"
        );
        assert_eq!(
            (request.method().as_str(), request.uri().path()),
            ("POST", "/")
        );
    }
}
