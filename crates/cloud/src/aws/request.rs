//! Requests of EC2's Query API: a form in a POST, signed with [version
//! 4](https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html). Pure.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use form_urlencoded::Serializer;
use http::Request;

use crate::error::CloudError;

const API_VERSION: &str = "2016-11-15";
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// The requests that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    DescribeRouteTables,
    CreateRoute,
    ReplaceRoute,
    DeleteRoute,
    ModifyNetworkInterfaceAttribute,
}

impl Action {
    /// Its name, which is also that of its permission, behind `ec2:`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::DescribeRouteTables => "DescribeRouteTables",
            Self::CreateRoute => "CreateRoute",
            Self::ReplaceRoute => "ReplaceRoute",
            Self::DeleteRoute => "DeleteRoute",
            Self::ModifyNetworkInterfaceAttribute => "ModifyNetworkInterfaceAttribute",
        }
    }
}

/// The API to which requests go.
#[derive(Clone, Debug)]
pub(super) struct Api {
    /// Its address, without a path.
    pub(super) endpoint: String,
    pub(super) region: String,
}

/// Returns a signed request.
pub(super) fn signed(
    api: &Api,
    credentials: &Credentials,
    at: SystemTime,
    action: Action,
    parameters: &[(&str, &str)],
) -> Result<Request<String>, CloudError> {
    let unsigned = |problem: String| CloudError::Unsigned {
        action: action.name(),
        problem,
    };
    let common = [("Action", action.name()), ("Version", API_VERSION)];
    let body = Serializer::new(String::new())
        .extend_pairs(common)
        .extend_pairs(parameters)
        .finish();
    let url = format!("{}/", api.endpoint);
    let headers = [("content-type", FORM)];
    let identity = credentials.clone().into();
    let settings = v4::SigningParams::builder()
        .identity(&identity)
        .region(&api.region)
        .name("ec2")
        .time(at)
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| unsigned(error.to_string()))?;
    let signable = SignableRequest::new(
        "POST",
        &url,
        headers.into_iter(),
        SignableBody::Bytes(body.as_bytes()),
    )
    .map_err(|error| unsigned(error.to_string()))?;
    let (instructions, _signature) = sign(signable, &settings.into())
        .map_err(|error| unsigned(error.to_string()))?
        .into_parts();
    let request = Request::post(&url).header("content-type", FORM).body(body);
    let mut request = request.map_err(|error| unsigned(error.to_string()))?;
    instructions.apply_to_request_http1x(&mut request);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_request_is_a_signed_form() {
        let api = Api {
            endpoint: "https://ec2.us-east-1.amazonaws.com".to_owned(),
            region: "us-east-1".to_owned(),
        };
        let keys = Credentials::new(
            "AKIDEXAMPLE",
            "secret",
            Some("session".to_owned()),
            None,
            "test",
        );
        let at = SystemTime::UNIX_EPOCH + Duration::from_mins(24_015_636);
        let parameters = [
            ("RouteTableId", "rtb-1"),
            ("DestinationCidrBlock", "10.5.7.0/24"),
        ];
        let request = signed(&api, &keys, at, Action::CreateRoute, &parameters).expect("signed");
        let form = "Action=CreateRoute&Version=2016-11-15&RouteTableId=rtb-1&\
            DestinationCidrBlock=10.5.7.0%2F24";
        assert_eq!(request.body(), form);
        assert_eq!(
            (request.method().as_str(), request.uri().path()),
            ("POST", "/")
        );
        let header = |name: &str| request.headers()[name].to_str().expect("a text").to_owned();
        assert_eq!(
            (header("x-amz-date"), header("x-amz-security-token")),
            ("20150830T123600Z".into(), "session".into())
        );
        let authorization = header("authorization");
        let start = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/ec2/aws4_request, \
            SignedHeaders=";
        assert!(authorization.starts_with(start), "{authorization}");
        assert!(
            !format!("{request:?}").contains("session"),
            "secrets are marked"
        );
    }
}
