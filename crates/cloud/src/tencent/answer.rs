//! Answers of Tencent's API: JSON, of which this reads route tables and errors. Pure.
//!
//! An error has the HTTP status 200, like everything else.

use flannel_host::excerpt::message_excerpt;
use ipnet::Ipv4Net;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{signature::TencentAction, words::WORDS};
use crate::{
    error::CloudError,
    http::HttpAnswer,
    plan::{RouteTarget, Table, TableRoute},
};

/// The kind of gateway that is an instance; its identifier is the address.
pub(super) const INSTANCE: &str = "NORMAL_CVM";
/// The kind of routes that are made by request.
const BY_REQUEST: &str = "USER";

/// A page of route tables.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TablePage {
    pub(super) total_count: usize,
    pub(super) route_table_set: Vec<TencentTable>,
}

/// A route table.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TencentTable {
    pub(super) route_table_id: String,
    #[serde(default)]
    pub(super) main: bool,
    #[serde(default)]
    association_set: Vec<TableAssociation>,
    #[serde(default)]
    route_set: Vec<TencentRoute>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TableAssociation {
    subnet_id: String,
}

/// A route in it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TencentRoute {
    /// Empty or absent in a route of IPv6.
    destination_cidr_block: Option<String>,
    gateway_type: String,
    #[serde(default)]
    gateway_id: String,
    /// Only IPv4 routes have an identifier.
    #[serde(default)]
    route_id: u64,
    route_type: Option<String>,
    enabled: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TencentAnswer {
    response: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TencentError {
    code: String,
    #[serde(default)]
    message: String,
}

impl TencentTable {
    /// True if it serves a subnet of the VPC.
    pub(super) fn serves(&self, subnet: &str) -> bool {
        self.association_set
            .iter()
            .any(|association| association.subnet_id == subnet)
    }

    /// The table as the plan sees it. A disabled route to this node counts as a blackhole: it
    /// carries nothing, and is in the way of one that does.
    pub(super) fn table(&self, own: &str) -> Table {
        Table {
            id: self.route_table_id.clone(),
            routes: self
                .route_set
                .iter()
                .filter_map(|route| route.row(own))
                .collect(),
        }
    }

    /// The identifiers of the routes to a destination that were made by request.
    pub(super) fn ids(&self, destination: Ipv4Net) -> Vec<u64> {
        let is_to = |route: &&TencentRoute| {
            route.is_by_request() && route.destination() == Some(destination)
        };
        self.route_set
            .iter()
            .filter(is_to)
            .map(|route| route.route_id)
            .collect()
    }

    /// Those of them that lead to an instance with this address.
    pub(super) fn ids_to(&self, destination: Ipv4Net, address: &str) -> Vec<u64> {
        let is_to = |route: &&TencentRoute| {
            route.is_by_request()
                && route.destination() == Some(destination)
                && route.leads_to(address)
        };
        self.route_set
            .iter()
            .filter(is_to)
            .map(|route| route.route_id)
            .collect()
    }
}

impl TencentRoute {
    fn destination(&self) -> Option<Ipv4Net> {
        self.destination_cidr_block.as_ref()?.parse().ok()
    }

    fn is_by_request(&self) -> bool {
        self.route_type.as_deref() == Some(BY_REQUEST)
    }

    fn leads_to(&self, address: &str) -> bool {
        self.gateway_type == INSTANCE && self.gateway_id == address
    }

    fn row(&self, own: &str) -> Option<TableRoute> {
        let is_own = self.leads_to(own);
        Some(TableRoute {
            destination: self.destination()?,
            target: if is_own {
                RouteTarget::Own
            } else {
                RouteTarget::Other(self.gateway_id.clone())
            },
            is_blackhole: is_own && self.enabled == Some(false),
            is_static: self.is_by_request(),
        })
    }
}

/// Reads an answer.
pub(super) fn read<T: DeserializeOwned>(
    action: TencentAction,
    answer: &HttpAnswer,
) -> Result<T, CloudError> {
    let bad = |problem: String| CloudError::BadAnswer {
        action: action.name(),
        problem,
    };
    if !answer.status.is_success() {
        return Err(CloudError::Refused {
            action: action.name(),
            code: format!("HTTP status {}", answer.status.as_u16()),
            message: message_excerpt(&answer.body),
        });
    }
    let TencentAnswer { mut response } =
        serde_json::from_str(&answer.body).map_err(|error| bad(error.to_string()))?;
    match response.get_mut("Error").map(Value::take) {
        Some(error) => Err(match serde_json::from_value(error) {
            Ok(error) => refusal(action, error),
            Err(error) => bad(error.to_string()),
        }),
        None => serde_json::from_value(response).map_err(|error| bad(error.to_string())),
    }
}

fn refusal(action: TencentAction, TencentError { code, message }: TencentError) -> CloudError {
    let permission = format!("vpc:{}", action.name());
    let action = action.name();
    let (kind, detail) = code.split_once('.').unwrap_or((&code, ""));
    match (kind, detail) {
        ("UnauthorizedOperation", _) | ("AuthFailure", "UnauthorizedOperation") => {
            CloudError::NotAllowed {
                words: &WORDS,
                action,
                permission,
                code,
            }
        }
        ("AuthFailure", _) => CloudError::BadCredentials { action, code },
        ("RequestLimitExceeded", _) => CloudError::Throttled { action, code },
        _ => CloudError::Refused {
            action,
            code,
            message: message_excerpt(&message),
        },
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    /// As the reference of the API shows it, with a route of each kind.
    const TABLES: &str = r#"{"Response":{"TotalCount":1,"RequestId":"354f4ac3","RouteTableSet":[{
        "VpcId":"vpc-1","RouteTableId":"rtb-1","RouteTableName":"default","CreatedTime":"2017-12-29 17:21:19","Main":true,
        "AssociationSet":[{"SubnetId":"subnet-1","RouteTableId":"rtb-1"}],"RouteSet":[
        {"DestinationCidrBlock":"10.1.0.0/16","GatewayType":"LOCAL","GatewayId":"Local","RouteId":1,"RouteType":"NETD","Enabled":true},
        {"DestinationCidrBlock":"10.5.7.0/24","GatewayType":"NORMAL_CVM","GatewayId":"10.1.0.2","RouteId":2,"RouteItemId":"rti-2","RouteType":"USER","Enabled":false},
        {"DestinationCidrBlock":"10.5.7.0/24","GatewayType":"NORMAL_CVM","GatewayId":"10.1.0.3","RouteId":3,"RouteType":"USER","Enabled":true},
        {"DestinationCidrBlock":"10.5.8.0/24","GatewayType":"NAT","GatewayId":"10.1.0.2","RouteId":4,"RouteType":"USER","Enabled":false},
        {"DestinationCidrBlock":"","DestinationIpv6CidrBlock":"::/0","GatewayType":"EIP","GatewayId":"0","RouteId":5,"RouteType":"USER","Enabled":true}]}]}}"#;

    fn answer(body: &str) -> HttpAnswer {
        HttpAnswer {
            status: StatusCode::OK,
            body: body.to_owned(),
        }
    }

    fn refused(code: &str) -> CloudError {
        let body = format!(
            r#"{{"Response":{{"Error":{{"Code":"{code}","Message":"the reason"}},"RequestId":"1"}}}}"#
        );
        read::<Value>(TencentAction::CreateRoutes, &answer(&body)).expect_err("an error")
    }

    #[test]
    fn tables_are_read_with_their_ipv4_routes() {
        let page: TablePage =
            read(TencentAction::DescribeRouteTables, &answer(TABLES)).expect("readable");
        let [table] = &page.route_table_set[..] else {
            panic!("{page:?}")
        };
        assert_eq!(
            (
                page.total_count,
                table.main,
                table.serves("subnet-1"),
                table.serves("subnet-2")
            ),
            (1, true, true, false)
        );
        let route = |destination: &str, target: RouteTarget, is_blackhole, is_static| TableRoute {
            destination: destination.parse().expect("a prefix"),
            target,
            is_blackhole,
            is_static,
        };
        let other = |id: &str| RouteTarget::Other(id.to_owned());
        let routes = vec![
            route("10.1.0.0/16", other("Local"), false, false),
            route("10.5.7.0/24", RouteTarget::Own, true, true),
            route("10.5.7.0/24", other("10.1.0.3"), false, true),
            route("10.5.8.0/24", other("10.1.0.2"), false, true),
        ];
        assert_eq!(
            table.table("10.1.0.2"),
            Table {
                id: "rtb-1".to_owned(),
                routes
            }
        );
        let subnet = "10.5.7.0/24".parse().expect("a prefix");
        assert_eq!(
            (table.ids(subnet), table.ids_to(subnet, "10.1.0.2")),
            (vec![2, 3], vec![2])
        );
        for bad in [
            "",
            "{}",
            r#"{"Response":{}}"#,
            r#"{"Response":{"Error":7}}"#,
        ] {
            let error = read::<TablePage>(TencentAction::DescribeRouteTables, &answer(bad))
                .expect_err(bad)
                .to_string();
            assert!(
                error.starts_with("the answer to DescribeRouteTables is not understood: "),
                "{error}"
            );
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        for code in ["UnauthorizedOperation", "AuthFailure.UnauthorizedOperation"] {
            let expected = format!(
                "CreateRoutes is not allowed: the CAM policy of this node's role or user needs \
                 vpc:CreateRoutes ({code})"
            );
            assert_eq!(refused(code).to_string(), expected);
        }
        let text = refused("AuthFailure.SignatureFailure").to_string();
        assert!(
            text.contains(
                "refused (AuthFailure.SignatureFailure): they are wrong or expired, or the clock"
            ),
            "{text}"
        );
        assert!(
            refused("RequestLimitExceeded").is_throttled()
                && refused("RequestLimitExceeded.IPLimitExceeded").is_throttled()
        );
        let text = refused("InvalidParameterValue.Malformed").to_string();
        assert_eq!(
            text,
            "CreateRoutes was refused: InvalidParameterValue.Malformed: the reason"
        );
        assert_eq!(refused("LimitExceeded").code(), Some("LimitExceeded"));
        let html = HttpAnswer {
            status: StatusCode::BAD_GATEWAY,
            body: "<html>".to_owned(),
        };
        let text = read::<Value>(TencentAction::CreateRoutes, &html)
            .expect_err("an error")
            .to_string();
        assert_eq!(text, "CreateRoutes was refused: HTTP status 502: <html>");
    }

    /// The first byte chooses the status.
    #[test]
    fn fuzz_tencent_answers() {
        let seeds = [
            format!("\0{TABLES}"),
            "\0{\"Response\":{\"Error\":{\"Code\":\"LimitExceeded\"}}}".to_owned(),
        ];
        flannel_fuzz::run(
            "tencent_answers",
            &seeds.each_ref().map(String::as_bytes),
            |input| {
                let Some((first, body)) = input.split_first() else {
                    return;
                };
                let status = StatusCode::from_u16([200, 400, 403, 503][usize::from(*first) % 4])
                    .expect("a status");
                let body = String::from_utf8_lossy(body).into_owned();
                let page = read::<TablePage>(
                    TencentAction::DescribeRouteTables,
                    &HttpAnswer { status, body },
                );
                for found in page.map(|page| page.route_table_set).unwrap_or_default() {
                    for route in found.table("10.1.0.2").routes {
                        let (ids, ours) = (
                            found.ids(route.destination),
                            found.ids_to(route.destination, "10.1.0.2"),
                        );
                        assert!(
                            ours.iter().all(|id| ids.contains(id)),
                            "{ours:?} of {ids:?}"
                        );
                    }
                }
            },
        );
    }
}
