//! Answers of the API: JSON, of which this reads routes, operations and errors. Pure.

use flannel_host::excerpt::message_excerpt;
use http::StatusCode;
use ipnet::Ipv4Net;
use serde::Deserialize;

use super::{action::GceAction, place::GcePlace, route_name::route_name, words::WORDS};
use crate::{
    error::CloudError,
    http::HttpAnswer,
    plan::{RouteTarget, Table, TableRoute},
};

/// The warning on a route whose instance is gone.
const GONE: &str = "NEXT_HOP_INSTANCE_NOT_FOUND";
/// The scope without which an instance may not change routes, whatever its account may.
const SCOPE: &str = "the access scope https://www.googleapis.com/auth/compute";

/// A page of routes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RoutePage {
    #[serde(default)]
    pub(super) items: Vec<GceRoute>,
    pub(super) next_page_token: Option<String>,
}

/// The fields of a route that this backend uses.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GceRoute {
    name: String,
    dest_range: String,
    network: String,
    next_hop_instance: Option<String>,
    next_hop_ip: Option<String>,
    #[serde(default)]
    warnings: Vec<RouteWarning>,
}

#[derive(Debug, Deserialize)]
struct RouteWarning {
    code: String,
}

/// A change that takes its time.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GceOperation {
    pub(super) name: String,
    status: String,
    error: Option<OperationErrors>,
}

#[derive(Debug, Deserialize)]
struct OperationErrors {
    errors: Vec<OperationError>,
}

#[derive(Debug, Deserialize)]
struct OperationError {
    code: String,
    #[serde(default)]
    message: String,
}

/// An instance.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GceInstance {
    #[serde(default)]
    pub(super) can_ip_forward: bool,
}

#[derive(Debug, Deserialize)]
struct ErrorAnswer {
    error: ErrorBody,
}

#[derive(Debug, Deserialize)]
struct ErrorBody {
    #[serde(default)]
    message: String,
    #[serde(default)]
    errors: Vec<ErrorItem>,
}

#[derive(Debug, Deserialize)]
struct ErrorItem {
    reason: String,
}

impl GceRoute {
    /// The receiver: the path of an instance, an address, or something else.
    pub(super) fn target(&self) -> &str {
        let instance = self.next_hop_instance.as_deref().map(path);
        instance
            .or(self.next_hop_ip.as_deref())
            .unwrap_or("something else")
    }

    /// True if it is of the network with this path.
    pub(super) fn is_of(&self, network: &str) -> bool {
        path(&self.network) == network
    }
}

/// Returns the table of a network: its IPv4 routes. Those with the name that a node gives them were
/// made by a node, and the others are none of its business.
pub(super) fn table(routes: &[GceRoute], place: &GcePlace) -> Table {
    let (network, own) = (place.network_path(), place.target());
    let row = |route: &GceRoute| {
        let destination: Ipv4Net = route.dest_range.parse().ok()?;
        let target = route.target();
        Some(TableRoute {
            destination,
            target: if target == own {
                RouteTarget::Own
            } else {
                RouteTarget::Other(target.to_owned())
            },
            is_blackhole: route.warnings.iter().any(|warning| warning.code == GONE),
            is_static: route.name == route_name(destination),
        })
    };
    let routes = routes
        .iter()
        .filter(|route| route.is_of(&network))
        .filter_map(row)
        .collect();
    Table {
        id: place.network.clone(),
        routes,
    }
}

/// Returns true if an operation is finished; an error if it failed.
pub(super) fn is_done(action: GceAction, operation: &GceOperation) -> Result<bool, CloudError> {
    match operation
        .error
        .as_ref()
        .and_then(|error| error.errors.first())
    {
        Some(OperationError { code, message }) => Err(CloudError::Refused {
            action: action.name(),
            code: code.clone(),
            message: message_excerpt(message),
        }),
        None => Ok(operation.status == "DONE"),
    }
}

/// Passes an answer without an error.
pub(super) fn accepted(action: GceAction, answer: HttpAnswer) -> Result<String, CloudError> {
    if answer.status.is_success() {
        return Ok(answer.body);
    }
    let (reason, message) = match serde_json::from_str::<ErrorAnswer>(&answer.body) {
        Ok(ErrorAnswer {
            error: ErrorBody { message, errors },
        }) => (errors.into_iter().next().map(|error| error.reason), message),
        Err(_) => (None, answer.body),
    };
    let code = reason.unwrap_or_else(|| format!("HTTP status {}", answer.status.as_u16()));
    Err(refusal(action, answer.status, code, &message))
}

fn refusal(action: GceAction, status: StatusCode, code: String, message: &str) -> CloudError {
    let name = action.name();
    match (status, code.as_str()) {
        (StatusCode::UNAUTHORIZED, _) => CloudError::BadCredentials { action: name, code },
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, _)
        | (_, "rateLimitExceeded" | "userRateLimitExceeded") => {
            CloudError::Throttled { action: name, code }
        }
        (_, "insufficientPermissions") => CloudError::NotAllowed {
            words: &WORDS,
            action: name,
            permission: SCOPE.to_owned(),
            code,
        },
        (_, "forbidden") => {
            let permission = permission_in(message)
                .unwrap_or_else(|| action.permission())
                .to_owned();
            CloudError::NotAllowed {
                words: &WORDS,
                action: name,
                permission,
                code,
            }
        }
        _ => CloudError::Refused {
            action: name,
            code,
            message: message_excerpt(&message),
        },
    }
}

/// The permission that a message names, as in `Required 'compute.routes.list' permission for ...`.
fn permission_in(message: &str) -> Option<&str> {
    let (permission, _) = message.split_once("Required '")?.1.split_once('\'')?;
    permission.starts_with("compute.").then_some(permission)
}

/// Reads an answer.
pub(super) fn read<'a, T: Deserialize<'a>>(
    action: GceAction,
    body: &'a str,
) -> Result<T, CloudError> {
    let bad = |error: serde_json::Error| CloudError::BadAnswer {
        action: action.name(),
        problem: error.to_string(),
    };
    serde_json::from_str(body).map_err(bad)
}

/// The path of a resource, which its URLs have in common, whatever the host.
fn path(url: &str) -> &str {
    url.find("projects/").map_or(url, |start| &url[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the reference of the API shows it.
    const PAGE: &str = r#"{"kind":"compute#routeList","id":"projects/p1/global/routes","items":[
        {"kind":"compute#route","id":"1","name":"default-route-1","network":"https://www.googleapis.com/compute/v1/projects/p1/global/networks/default",
         "destRange":"10.128.0.0/20","priority":0,"nextHopNetwork":"https://www.googleapis.com/compute/v1/projects/p1/global/networks/default"},
        {"kind":"compute#route","name":"flannel-10-5-7-0-24","network":"https://www.googleapis.com/compute/v1/projects/p1/global/networks/default",
         "destRange":"10.5.7.0/24","priority":1000,"nextHopInstance":"https://compute.googleapis.com/compute/v1/projects/p1/zones/z/instances/n1"},
        {"kind":"compute#route","name":"flannel-10-5-8-0-24","network":"https://www.googleapis.com/compute/v1/projects/p1/global/networks/default",
         "destRange":"10.5.8.0/24","nextHopInstance":"https://www.googleapis.com/compute/v1/projects/p1/zones/z/instances/gone",
         "warnings":[{"code":"NEXT_HOP_INSTANCE_NOT_FOUND","message":"no such instance","data":[]}]},
        {"kind":"compute#route","name":"by-hand","network":"https://www.googleapis.com/compute/v1/projects/p1/global/networks/default",
         "destRange":"10.5.9.0/24","nextHopIp":"10.128.0.9"},
        {"kind":"compute#route","name":"flannel-10-5-7-0-24","network":"https://www.googleapis.com/compute/v1/projects/p1/global/networks/other",
         "destRange":"10.5.7.0/24","nextHopIp":"10.128.0.9"},
        {"kind":"compute#route","name":"six","network":"https://www.googleapis.com/compute/v1/projects/p1/global/networks/default",
         "destRange":"::/0","nextHopGateway":"https://www.googleapis.com/compute/v1/projects/p1/global/gateways/default-internet-gateway"}],
        "nextPageToken":"next","selfLink":"https://www.googleapis.com/compute/v1/projects/p1/global/routes"}"#;

    fn place() -> GcePlace {
        GcePlace {
            project: "p1".to_owned(),
            network: "default".to_owned(),
            instance: "projects/p1/zones/z/instances/n1".to_owned(),
            address: "10.128.0.2".parse().expect("an address"),
            is_shared: false,
        }
    }

    fn refused(status: u16, reason: &str, message: &str) -> CloudError {
        let body = format!(
            r#"{{"error":{{"code":{status},"message":"{message}","errors":[{{"message":"{message}","domain":"global","reason":"{reason}"}}]}}}}"#
        );
        let answer = HttpAnswer {
            status: StatusCode::from_u16(status).expect("a status"),
            body,
        };
        accepted(GceAction::InsertRoute, answer).expect_err("an error")
    }

    #[test]
    fn only_routes_of_the_network_with_the_name_of_a_node_are_nodes() {
        let page: RoutePage = read(GceAction::ListRoutes, PAGE).expect("a page");
        assert_eq!(page.next_page_token.as_deref(), Some("next"));
        let route = |destination: &str, target: RouteTarget, is_blackhole, is_static| TableRoute {
            destination: destination.parse().expect("a prefix"),
            target,
            is_blackhole,
            is_static,
        };
        let other = |id: &str| RouteTarget::Other(id.to_owned());
        let routes = vec![
            route("10.128.0.0/20", other("something else"), false, false),
            route("10.5.7.0/24", RouteTarget::Own, false, true),
            route(
                "10.5.8.0/24",
                other("projects/p1/zones/z/instances/gone"),
                true,
                true,
            ),
            route("10.5.9.0/24", other("10.128.0.9"), false, false),
        ];
        assert_eq!(
            table(&page.items, &place()),
            Table {
                id: "default".to_owned(),
                routes
            }
        );
        let empty: RoutePage =
            read(GceAction::ListRoutes, r#"{"kind":"compute#routeList"}"#).expect("a page");
        assert!(empty.items.is_empty() && empty.next_page_token.is_none());
        let error = read::<RoutePage>(GceAction::ListRoutes, "[")
            .expect_err("no object")
            .to_string();
        assert!(
            error.starts_with("the answer to routes.list is not understood: "),
            "{error}"
        );
    }

    #[test]
    fn an_operation_runs_ends_or_fails() {
        let done = |text: &str| {
            is_done(
                GceAction::InsertRoute,
                &read(GceAction::GetOperation, text).expect("readable"),
            )
        };
        assert!(!done(r#"{"name":"o1","status":"RUNNING"}"#).expect("running"));
        assert!(done(r#"{"name":"o1","status":"DONE"}"#).expect("done"));
        let failed = r#"{"name":"o1","status":"DONE","httpErrorStatusCode":403,
            "error":{"errors":[{"code":"QUOTA_EXCEEDED","message":"Quota 'ROUTES' exceeded.  Limit: 250.0"}]}}"#;
        let error = done(failed).expect_err("failed");
        assert_eq!(error.code(), Some("QUOTA_EXCEEDED"));
        assert!(
            error
                .to_string()
                .starts_with("routes.insert was refused: QUOTA_EXCEEDED: Quota 'ROUTES'"),
            "{error}"
        );
    }

    #[test]
    fn errors_say_what_to_do() {
        let message = "Required 'compute.networks.updatePolicy' permission for \
            'projects/p1/global/networks/default'";
        assert_eq!(
            refused(403, "forbidden", message).to_string(),
            "routes.insert is not allowed: the service account of this instance needs \
             compute.networks.updatePolicy \
             (forbidden)"
        );
        let text = refused(403, "forbidden", "no").to_string();
        assert!(
            text.contains(
                "needs compute.routes.create and compute.networks.updatePolicy (forbidden)"
            ),
            "{text}"
        );
        let text = refused(
            403,
            "insufficientPermissions",
            "Request had insufficient authentication scopes.",
        )
        .to_string();
        assert!(
            text.contains("needs the access scope https://www.googleapis.com/auth/compute"),
            "{text}"
        );
        let text = refused(401, "authError", "Invalid Credentials").to_string();
        assert!(
            text.contains("the credentials were refused (authError)"),
            "{text}"
        );
        for (status, reason) in [
            (403, "rateLimitExceeded"),
            (429, "x"),
            (503, "backendError"),
        ] {
            assert!(
                refused(status, reason, "slow down").is_throttled(),
                "{status} {reason}"
            );
        }
        let text = refused(409, "alreadyExists", "The resource exists").to_string();
        assert_eq!(
            text,
            "routes.insert was refused: alreadyExists: The resource exists"
        );
        let html = HttpAnswer {
            status: StatusCode::BAD_GATEWAY,
            body: "<html>".to_owned(),
        };
        let text = accepted(GceAction::ListRoutes, html)
            .expect_err("an error")
            .to_string();
        assert_eq!(text, "routes.list was refused: HTTP status 502: <html>");
    }

    /// The first byte chooses the status.
    #[test]
    fn fuzz_gce_answers() {
        let seeds = [
            format!("\0{PAGE}"),
            "\u{1}{\"error\":{\"message\":\"m\",\"errors\":[{\"reason\":\"forbidden\"}]}}"
                .to_owned(),
        ];
        flannel_fuzz::run(
            "gce_answers",
            &seeds.each_ref().map(String::as_bytes),
            |input| {
                let Some((first, body)) = input.split_first() else {
                    return;
                };
                let status = StatusCode::from_u16([200, 400, 403, 503][usize::from(*first) % 4])
                    .expect("a status");
                let body = String::from_utf8_lossy(body).into_owned();
                let Ok(body) = accepted(GceAction::ListRoutes, HttpAnswer { status, body }) else {
                    return;
                };
                if let Ok(page) = read::<RoutePage>(GceAction::ListRoutes, &body) {
                    assert!(table(&page.items, &place()).routes.len() <= page.items.len());
                }
                if let Ok(operation) = read(GceAction::GetOperation, &body) {
                    drop(is_done(GceAction::InsertRoute, &operation));
                }
            },
        );
    }
}
