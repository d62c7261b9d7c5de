//! Requests of Tencent's API 3.0: JSON in a POST, signed by TC3-HMAC-SHA256. Pure.
//!
//! The signature has the time of the request, to five minutes, and the text of its body.

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{
    HeaderValue, Request,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{error::CloudError, keys::ApiKeys};

const API_VERSION: &str = "2017-03-12";
const SERVICE: &str = "vpc";
const JSON: &str = "application/json; charset=utf-8";
const SIGNED: &str = "content-type;host";

/// The requests that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TencentAction {
    DescribeRouteTables,
    CreateRoutes,
    DeleteRoutes,
}

impl TencentAction {
    /// Its name, which is also that of its permission, behind `vpc:`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::DescribeRouteTables => "DescribeRouteTables",
            Self::CreateRoutes => "CreateRoutes",
            Self::DeleteRoutes => "DeleteRoutes",
        }
    }
}

/// The API to which requests go.
#[derive(Clone, Debug)]
pub(super) struct TencentApi {
    /// Its address, without a path.
    pub(super) endpoint: String,
    pub(super) region: String,
}

impl TencentApi {
    fn host(&self) -> &str {
        self.endpoint
            .split_once("://")
            .map_or(self.endpoint.as_str(), |(_, host)| host)
    }
}

/// Returns a signed request.
pub(super) fn signed(
    api: &TencentApi,
    keys: &ApiKeys,
    at: Timestamp,
    action: TencentAction,
    parameters: &Value,
) -> Result<Request<String>, CloudError> {
    let body = parameters.to_string();
    let authorization = authorization(keys, SERVICE, api.host(), &body, at);
    let mut request = Request::post(format!("{}/", api.endpoint))
        .header(CONTENT_TYPE, JSON)
        .header("x-tc-action", action.name())
        .header("x-tc-version", API_VERSION)
        .header("x-tc-region", &api.region)
        .header("x-tc-timestamp", at.as_second())
        .header(AUTHORIZATION, hidden(&authorization, action)?);
    if let Some(token) = &keys.token {
        request = request.header("x-tc-token", hidden(token.reveal(), action)?);
    }
    request
        .body(body)
        .map_err(|error| unsigned(action, error.to_string()))
}

/// A header that is never printed.
fn hidden(text: &str, action: TencentAction) -> Result<HeaderValue, CloudError> {
    let mut value = HeaderValue::try_from(text)
        .map_err(|_has_it| unsigned(action, "the keys are no text of a header".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn unsigned(action: TencentAction, problem: String) -> CloudError {
    CloudError::Unsigned {
        action: action.name(),
        problem,
    }
}

fn authorization(keys: &ApiKeys, service: &str, host: &str, body: &str, at: Timestamp) -> String {
    let date = at.strftime("%Y-%m-%d").to_string();
    let scope = format!("{date}/{service}/tc3_request");
    let request = format!(
        "POST\n/\n\ncontent-type:{JSON}\nhost:{host}\n\n{SIGNED}\n{}",
        digest(body)
    );
    let text = format!(
        "TC3-HMAC-SHA256\n{}\n{scope}\n{}",
        at.as_second(),
        digest(&request)
    );
    let secret = format!("TC3{}", keys.secret.reveal());
    let key = [&date, service, "tc3_request"]
        .iter()
        .fold(secret.into_bytes(), |key, part| sign(&key, part));
    let signature = hex::encode(sign(&key, &text));
    format!(
        "TC3-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={SIGNED}, Signature={signature}",
        keys.id
    )
}

fn digest(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keys(token: Option<&str>) -> ApiKeys {
        let id = "AKIDz8krbsJ5yKBZQpn74WFkmLPx3*******".to_owned();
        ApiKeys {
            id,
            secret: "Gu5t9xGARNpq86cd98joQYCN3*******".into(),
            token: token.map(Into::into),
        }
    }

    fn time() -> Timestamp {
        Timestamp::from_second(1_551_113_065).expect("a time")
    }

    /// The example of Tencent's documentation of the signature; the stars are part of its keys.
    #[test]
    fn the_published_example_has_the_published_signature() {
        let body = r#"{"Limit": 1, "Filters": [{"Values": ["\u672a\u547d\u540d"], "Name": "instance-name"}]}"#;
        let expected = "TC3-HMAC-SHA256 \
            Credential=AKIDz8krbsJ5yKBZQpn74WFkmLPx3*******/2019-02-25/cvm/tc3_request, \
                        SignedHeaders=content-type;host, \
                        Signature=2230eefd229f582d8b1b891af7107b91597240707d778ab3738f756258d7652c";
        assert_eq!(
            authorization(&keys(None), "cvm", "cvm.tencentcloudapi.com", body, time()),
            expected
        );
    }

    #[test]
    fn a_request_has_the_headers_of_the_api_and_shows_no_secret() {
        let api = TencentApi {
            endpoint: "https://vpc.tencentcloudapi.com".to_owned(),
            region: "ap-paris".to_owned(),
        };
        let parameters = json!({ "RouteTableId": "rtb-1" });
        let request = signed(
            &api,
            &keys(Some("of-a-role")),
            time(),
            TencentAction::DeleteRoutes,
            &parameters,
        );
        let request = request.expect("signed");
        let header = |name: &str| request.headers()[name].to_str().expect("a text").to_owned();
        let expected = [
            "DeleteRoutes",
            "2017-03-12",
            "ap-paris",
            "1551113065",
            "of-a-role",
            JSON,
        ];
        let names = [
            "x-tc-action",
            "x-tc-version",
            "x-tc-region",
            "x-tc-timestamp",
            "x-tc-token",
            "content-type",
        ];
        assert_eq!(names.map(header), expected);
        assert_eq!(
            (request.method().as_str(), request.uri().host()),
            ("POST", Some("vpc.tencentcloudapi.com"))
        );
        assert_eq!(request.body(), r#"{"RouteTableId":"rtb-1"}"#);
        let text = format!("{request:?} {:?}", keys(Some("of-a-role")));
        assert!(
            !text.contains("of-a-role") && !text.contains("Gu5t9x") && !text.contains("Signature="),
            "{text}"
        );
    }
}
