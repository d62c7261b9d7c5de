//! Answers of EC2's Query API: XML, of which this reads route tables and errors. Pure.

use flannel_host::excerpt::message_excerpt;
use http::StatusCode;
use ipnet::Ipv4Net;
use roxmltree::{Document, Node};

use super::{request::Action, words::WORDS};
use crate::{
    error::CloudError,
    http::HttpAnswer,
    plan::{RouteTarget, Table, TableRoute},
};

/// The elements that name a route's target, the more specific ones first.
const TARGETS: [&str; 11] = [
    "networkInterfaceId",
    "instanceId",
    "gatewayId",
    "natGatewayId",
    "transitGatewayId",
    "vpcPeeringConnectionId",
    "localGatewayId",
    "carrierGatewayId",
    "egressOnlyInternetGatewayId",
    "coreNetworkArn",
    "odbNetworkArn",
];

/// Passes an answer without an error.
pub(super) fn accepted(action: Action, answer: HttpAnswer) -> Result<String, CloudError> {
    if answer.status.is_success() {
        return Ok(answer.body);
    }
    let Some((code, message)) = error_of(&answer.body) else {
        let code = format!("HTTP status {}", answer.status.as_u16());
        return Err(match answer.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                CloudError::Throttled {
                    action: action.name(),
                    code,
                }
            }
            _ => CloudError::Refused {
                action: action.name(),
                code,
                message: message_excerpt(&answer.body),
            },
        });
    };
    Err(refusal(action, code, &message))
}

/// The error of a code.
fn refusal(action: Action, code: String, message: &str) -> CloudError {
    let permission = format!("ec2:{}", action.name());
    let action = action.name();
    match code.as_str() {
        // Their messages have a text of hundreds of bytes that only its owner can decode.
        "UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException" => {
            CloudError::NotAllowed {
                words: &WORDS,
                action,
                permission,
                code,
            }
        }
        "AuthFailure"
        | "InvalidClientTokenId"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "RequestExpired"
        | "MissingAuthenticationToken"
        | "UnrecognizedClientException" => CloudError::BadCredentials { action, code },
        "RequestLimitExceeded"
        | "Throttling"
        | "ThrottlingException"
        | "ServiceUnavailable"
        | "Unavailable" => CloudError::Throttled { action, code },
        _ => CloudError::Refused {
            action,
            code,
            message: message_excerpt(&message),
        },
    }
}

fn error_of(body: &str) -> Option<(String, String)> {
    let document = Document::parse(body).ok()?;
    let error = document
        .descendants()
        .find(|node| node.tag_name().name() == "Error")?;
    Some((
        text(error, "Code")?.to_owned(),
        text(error, "Message").unwrap_or_default().to_owned(),
    ))
}

/// Reads route tables. `own` is the identifier of this node's interface.
pub(super) fn tables(body: &str, own: &str) -> Result<Vec<Table>, CloudError> {
    let bad = |problem: String| CloudError::BadAnswer {
        action: Action::DescribeRouteTables.name(),
        problem,
    };
    let document = Document::parse(body).map_err(|error| bad(error.to_string()))?;
    let set = child(document.root_element(), "routeTableSet")
        .ok_or_else(|| bad("no routeTableSet".to_owned()))?;
    let table = |item: Node<'_, '_>| {
        let id = text(item, "routeTableId")
            .ok_or_else(|| bad("a table without routeTableId".to_owned()))?;
        let routes = child(item, "routeSet").into_iter().flat_map(items);
        Ok(Table {
            id: id.to_owned(),
            routes: routes.filter_map(|route| route_of(route, own)).collect(),
        })
    };
    items(set).map(table).collect()
}

/// Reads a route; `None` unless its destination is an IPv4 prefix.
fn route_of(item: Node<'_, '_>, own: &str) -> Option<TableRoute> {
    let destination: Ipv4Net = text(item, "destinationCidrBlock")?.parse().ok()?;
    let target = TARGETS
        .iter()
        .find_map(|name| text(item, name))
        .unwrap_or("nothing");
    Some(TableRoute {
        destination,
        target: if target == own {
            RouteTarget::Own
        } else {
            RouteTarget::Other(target.to_owned())
        },
        is_blackhole: text(item, "state") == Some("blackhole"),
        is_static: text(item, "origin") == Some("CreateRoute"),
    })
}

fn items<'a, 'input>(set: Node<'a, 'input>) -> impl Iterator<Item = Node<'a, 'input>> {
    set.children()
        .filter(|node| node.tag_name().name() == "item")
}

/// By its local name: the namespace has the version of the API.
fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children()
        .find(|child| child.tag_name().name() == name)
}

fn text<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    child(node, name)?
        .text()
        .map(str::trim)
        .filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the reference of the API shows it, with a route of each kind.
    const TABLES: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<DescribeRouteTablesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>6f570b0b-9c18-4b07-bdec-73740dcf861a</requestId>
  <routeTableSet>
    <item>
      <routeTableId>rtb-13ad487a</routeTableId>
      <vpcId>vpc-11ad4878</vpcId>
      <ownerId>111122223333</ownerId>
      <routeSet>
        <item><destinationCidrBlock>10.0.0.0/22</destinationCidrBlock><gatewayId>local</gatewayId>
          <state>active</state><origin>CreateRouteTable</origin></item>
        <item><destinationCidrBlock>10.244.7.0/24</destinationCidrBlock><instanceId>i-1</instanceId>
          <instanceOwnerId>111122223333</instanceOwnerId><networkInterfaceId>eni-own</networkInterfaceId>
          <state>active</state><origin>CreateRoute</origin></item>
        <item><destinationCidrBlock>10.244.8.0/24</destinationCidrBlock><networkInterfaceId>eni-gone</networkInterfaceId>
          <state>blackhole</state><origin>CreateRoute</origin></item>
        <item><destinationCidrBlock>10.9.0.0/16</destinationCidrBlock><gatewayId>vgw-1</gatewayId>
          <state>active</state><origin>EnableVgwRoutePropagation</origin></item>
        <item><destinationIpv6CidrBlock>::/0</destinationIpv6CidrBlock><gatewayId>igw-1</gatewayId>
          <state>active</state><origin>CreateRoute</origin></item>
        <item><destinationPrefixListId>pl-1</destinationPrefixListId><gatewayId>vpce-1</gatewayId>
          <state>active</state><origin>CreateRoute</origin></item>
      </routeSet>
      <associationSet><item><routeTableAssociationId>rtbassoc-12ad487b</routeTableAssociationId>
        <routeTableId>rtb-13ad487a</routeTableId><main>true</main></item></associationSet>
      <tagSet/>
    </item>
  </routeTableSet>
</DescribeRouteTablesResponse>"#;

    fn refused(status: u16, body: &str) -> CloudError {
        let answer = HttpAnswer {
            status: StatusCode::from_u16(status).expect("a status"),
            body: body.to_owned(),
        };
        accepted(Action::CreateRoute, answer).expect_err("an error")
    }

    fn error(code: &str, message: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?><Response><Errors><Error><Code>{code}</Code><Message>\
             {message}</Message></Error>\
             </Errors><RequestID>ea966190-f9aa-478e-9ede-example</RequestID></Response>"
        )
    }

    #[test]
    fn tables_are_read_with_their_ipv4_routes() {
        let route = |destination: &str, target: RouteTarget, is_blackhole, is_static| TableRoute {
            destination: destination.parse().expect("a prefix"),
            target,
            is_blackhole,
            is_static,
        };
        let other = |id: &str| RouteTarget::Other(id.to_owned());
        let routes = vec![
            route("10.0.0.0/22", other("local"), false, false),
            route("10.244.7.0/24", RouteTarget::Own, false, true),
            route("10.244.8.0/24", other("eni-gone"), true, true),
            route("10.9.0.0/16", other("vgw-1"), false, false),
        ];
        let expected = [Table {
            id: "rtb-13ad487a".to_owned(),
            routes,
        }];
        assert_eq!(tables(TABLES, "eni-own").expect("readable"), expected);
        let empty = "<DescribeRouteTablesResponse><routeTableSet/></DescribeRouteTablesResponse>";
        assert_eq!(tables(empty, "eni-own").expect("readable"), []);
        for bad in [
            "",
            "<a>",
            "<a/>",
            "<a><routeTableSet><item/></routeTableSet></a>",
        ] {
            let error = tables(bad, "eni-own").expect_err(bad).to_string();
            assert!(
                error.starts_with("the answer to DescribeRouteTables is not understood: "),
                "{error}"
            );
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let encoded = "You are not authorized. Encoded authorization failure message: AAAA";
        let expected = "CreateRoute is not allowed: the IAM policy of this node's role or user \
            needs ec2:CreateRoute \
                        (UnauthorizedOperation)";
        assert_eq!(
            refused(403, &error("UnauthorizedOperation", encoded)).to_string(),
            expected
        );
        let text = refused(
            401,
            &error(
                "AuthFailure",
                "AWS was not able to validate the credentials",
            ),
        )
        .to_string();
        assert!(
            text.contains("refused (AuthFailure): they are wrong or expired, or the clock"),
            "{text}"
        );
        for (status, body) in [
            (
                503,
                error("RequestLimitExceeded", "Request limit exceeded."),
            ),
            (503, String::new()),
        ] {
            assert!(refused(status, &body).is_throttled(), "{status} {body}");
        }
        let other = refused(
            400,
            &error(
                "InvalidRouteTableID.NotFound",
                "The routeTable ID 'rtb-1' does not exist",
            ),
        );
        let expected = "CreateRoute was refused: InvalidRouteTableID.NotFound: The routeTable ID \
            'rtb-1' does not exist";
        assert_eq!(
            (other.to_string().as_str(), other.code()),
            (expected, Some("InvalidRouteTableID.NotFound"))
        );
        let html = refused(502, "<html>Bad gateway").to_string();
        assert_eq!(
            html,
            "CreateRoute was refused: HTTP status 502: <html>Bad gateway"
        );
    }

    /// The first byte chooses the status.
    #[test]
    fn fuzz_ec2_answers() {
        let seeds = [
            format!("\0{TABLES}"),
            format!("\u{1}{}", error("AuthFailure", "no")),
        ];
        flannel_fuzz::run(
            "ec2_answers",
            &seeds.each_ref().map(String::as_bytes),
            |input| {
                let Some((first, body)) = input.split_first() else {
                    return;
                };
                let status = StatusCode::from_u16([200, 400, 403, 503][usize::from(*first) % 4])
                    .expect("a status");
                let body = String::from_utf8_lossy(body).into_owned();
                if let Ok(body) = accepted(Action::DescribeRouteTables, HttpAnswer { status, body })
                {
                    drop(tables(&body, "eni-own"));
                }
            },
        );
    }
}
