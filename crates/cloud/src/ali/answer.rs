//! Answers of Alibaba's API: JSON, of which this reads route entries and errors. Pure.

use flannel_host::excerpt::message_excerpt;
use http::StatusCode;
use ipnet::Ipv4Net;
use serde::{Deserialize, de::DeserializeOwned};

use super::{signature::AliAction, words::WORDS};
use crate::{
    error::CloudError,
    http::HttpAnswer,
    plan::{RouteTarget, TableRoute},
};

/// The kind of next hop that is an instance.
pub(super) const INSTANCE: &str = "Instance";
/// The kind of routes that are made by request, and the state of one that carries packets.
const BY_REQUEST: &str = "Custom";
const AVAILABLE: &str = "Available";

/// A subnet (VSwitch) of the VPC.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct VSwitch {
    pub(super) route_table: VSwitchTable,
}

/// The table of a VSwitch.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct VSwitchTable {
    pub(super) route_table_id: String,
}

/// A page of routes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct EntryPage {
    pub(super) route_entrys: EntryList,
    pub(super) next_token: Option<String>,
}

/// The routes of a page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct EntryList {
    #[serde(default)]
    pub(super) route_entry: Vec<AliEntry>,
}

/// A route.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AliEntry {
    destination_cidr_block: String,
    #[serde(rename = "Type")]
    kind: String,
    status: String,
    next_hops: NextHops,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NextHops {
    #[serde(default)]
    next_hop: Vec<AliHop>,
}

/// A next hop. Those of the cloud itself have no identifier.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AliHop {
    #[serde(default)]
    next_hop_id: String,
    next_hop_type: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AliError {
    code: String,
    #[serde(default)]
    message: String,
}

impl AliEntry {
    /// The route as the plan sees it; `None` for another family.
    pub(super) fn row(&self, own: &str) -> Option<TableRoute> {
        Some(TableRoute {
            destination: self.destination()?,
            target: if self.leads_to(own) {
                RouteTarget::Own
            } else {
                RouteTarget::Other(self.hop().to_owned())
            },
            is_blackhole: false,
            is_static: self.kind == BY_REQUEST,
        })
    }

    fn destination(&self) -> Option<Ipv4Net> {
        self.destination_cidr_block.parse().ok()
    }

    /// True for a route to an instance that was made by request.
    pub(super) fn is_ours(&self, destination: Ipv4Net, instance: &str) -> bool {
        self.is_to(destination) && self.leads_to(instance)
    }

    /// True for a route to a subnet that was made by request.
    pub(super) fn is_to(&self, destination: Ipv4Net) -> bool {
        self.kind == BY_REQUEST && self.destination() == Some(destination)
    }

    fn leads_to(&self, instance: &str) -> bool {
        matches!(
            &self.next_hops.next_hop[..],
            [hop] if hop.next_hop_type == INSTANCE && hop.next_hop_id == instance,
        )
    }

    /// The identifier of the next hop, by which a route is deleted.
    pub(super) fn hop(&self) -> &str {
        self.next_hops
            .next_hop
            .first()
            .map_or("nothing", |hop| &hop.next_hop_id)
    }

    /// True once it carries packets.
    pub(super) fn is_available(&self) -> bool {
        self.status == AVAILABLE
    }
}

/// Reads an answer.
pub(super) fn read<T: DeserializeOwned>(
    action: AliAction,
    answer: &HttpAnswer,
) -> Result<T, CloudError> {
    if !answer.status.is_success() {
        return Err(refusal(action, answer));
    }
    let bad = |error: serde_json::Error| CloudError::BadAnswer {
        action: action.name(),
        problem: error.to_string(),
    };
    serde_json::from_str(&answer.body).map_err(bad)
}

fn refusal(action: AliAction, answer: &HttpAnswer) -> CloudError {
    let permission = format!("vpc:{}", action.name());
    let action = action.name();
    let AliError { code, message } =
        serde_json::from_str(&answer.body).unwrap_or_else(|_no_error| AliError {
            code: format!("HTTP status {}", answer.status.as_u16()),
            message: answer.body.clone(),
        });
    let kind = code.split_once('.').map_or(code.as_str(), |(kind, _)| kind);
    match kind {
        "Forbidden" | "NoPermission" => CloudError::NotAllowed {
            words: &WORDS,
            action,
            permission,
            code,
        },
        "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "IncompleteSignature"
        | "InvalidSecurityToken"
        | "InvalidTimeStamp"
        | "SignatureNonceUsed" => CloudError::BadCredentials { action, code },
        // The VPC changes one route at a time.
        "Throttling" | "TaskConflict" | "ServiceUnavailable" => {
            CloudError::Throttled { action, code }
        }
        _ if answer.status == StatusCode::TOO_MANY_REQUESTS => {
            CloudError::Throttled { action, code }
        }
        _ => CloudError::Refused {
            action,
            code,
            message: message_excerpt(&message),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the reference of the API shows it, with a route of each kind.
    const ENTRIES: &str = r#"{"NextToken":"more","RequestId":"1","RouteEntrys":{"RouteEntry":[
        {"Type":"System","Status":"Available","DestinationCidrBlock":"10.1.0.0/16","IpVersion":"IPv4","RouteTableId":"vtb-1",
         "NextHops":{"NextHop":[{"NextHopId":"","NextHopType":"local","Enabled":1,"Weight":0}]}},
        {"Type":"Custom","Status":"Pending","DestinationCidrBlock":"10.5.7.0/24","RouteTableId":"vtb-1","RouteEntryId":"rte-1",
         "NextHops":{"NextHop":[{"NextHopId":"i-1","NextHopType":"Instance"}]}},
        {"Type":"Custom","Status":"Available","DestinationCidrBlock":"10.5.8.0/24","RouteTableId":"vtb-1",
         "NextHops":{"NextHop":[{"NextHopId":"i-1","NextHopType":"Instance"},{"NextHopId":"i-2","NextHopType":"Instance"}]}},
        {"Type":"Custom","Status":"Available","DestinationCidrBlock":"::/0","NextHops":{"NextHop":[]}}]}}"#;

    fn refused(status: u16, code: &str) -> CloudError {
        let body = format!(
            r#"{{"Code":"{code}","Message":"the reason","RequestId":"1","HostId":"vpc.aliyuncs.com"}}"#
        );
        let answer = HttpAnswer {
            status: StatusCode::from_u16(status).expect("a status"),
            body,
        };
        read::<EntryPage>(AliAction::CreateRouteEntry, &answer).expect_err("an error")
    }

    #[test]
    fn routes_are_read_with_their_only_next_hop() {
        let answer = HttpAnswer {
            status: StatusCode::OK,
            body: ENTRIES.to_owned(),
        };
        let page: EntryPage = read(AliAction::DescribeRouteEntryList, &answer).expect("readable");
        assert_eq!(page.next_token.as_deref(), Some("more"));
        let entries = page.route_entrys.route_entry;
        let rows: Vec<_> = entries
            .iter()
            .filter_map(|entry| entry.row("i-1"))
            .collect();
        let row = |destination: &str, target: RouteTarget, is_static| TableRoute {
            destination: destination.parse().expect("a prefix"),
            target,
            is_blackhole: false,
            is_static,
        };
        let other = |id: &str| RouteTarget::Other(id.to_owned());
        let expected = [
            row("10.1.0.0/16", other(""), false),
            row("10.5.7.0/24", RouteTarget::Own, true),
            row("10.5.8.0/24", other("i-1"), true),
        ];
        assert_eq!(rows, expected);
        let subnet = "10.5.7.0/24".parse().expect("a prefix");
        assert_eq!(
            [&entries[1], &entries[2]].map(|entry| entry.is_ours(subnet, "i-1")),
            [true, false]
        );
        assert_eq!(
            (entries[1].is_available(), entries[2].is_available()),
            (false, true)
        );
        let bad = HttpAnswer {
            status: StatusCode::OK,
            body: "{}".to_owned(),
        };
        let error = read::<EntryPage>(AliAction::DescribeRouteEntryList, &bad)
            .expect_err("no list")
            .to_string();
        assert!(
            error.starts_with("the answer to DescribeRouteEntryList is not understood: "),
            "{error}"
        );
    }

    #[test]
    fn errors_say_what_to_do() {
        for code in ["Forbidden.RAM", "NoPermission"] {
            let expected = format!(
                "CreateRouteEntry is not allowed: the RAM policy of this node's role or user needs \
                 vpc:CreateRouteEntry ({code})"
            );
            assert_eq!(refused(403, code).to_string(), expected);
        }
        for code in [
            "SignatureDoesNotMatch",
            "InvalidAccessKeyId.NotFound",
            "InvalidSecurityToken.Expired",
        ] {
            let text = refused(400, code).to_string();
            assert!(
                text.contains(&format!("the credentials were refused ({code})")),
                "{text}"
            );
        }
        for (status, code) in [
            (400, "Throttling.User"),
            (400, "TaskConflict"),
            (503, "ServiceUnavailable"),
            (429, "x"),
        ] {
            assert!(refused(status, code).is_throttled(), "{code}");
        }
        let text = refused(400, "RouterEntryConflict.Duplicated").to_string();
        assert_eq!(
            text,
            "CreateRouteEntry was refused: RouterEntryConflict.Duplicated: the reason"
        );
        let html = HttpAnswer {
            status: StatusCode::BAD_GATEWAY,
            body: "<html>".to_owned(),
        };
        let text = read::<EntryPage>(AliAction::CreateRouteEntry, &html)
            .expect_err("an error")
            .to_string();
        assert_eq!(
            text,
            "CreateRouteEntry was refused: HTTP status 502: <html>"
        );
    }

    /// The first byte chooses the status.
    #[test]
    fn fuzz_ali_answers() {
        let seeds = [
            format!("\0{ENTRIES}"),
            "\u{2}{\"Code\":\"NoPermission\",\"Message\":\"m\"}".to_owned(),
        ];
        flannel_fuzz::run(
            "ali_answers",
            &seeds.each_ref().map(String::as_bytes),
            |input| {
                let Some((first, body)) = input.split_first() else {
                    return;
                };
                let status = StatusCode::from_u16([200, 400, 403, 503][usize::from(*first) % 4])
                    .expect("a status");
                let body = String::from_utf8_lossy(body).into_owned();
                let page = read::<EntryPage>(
                    AliAction::DescribeRouteEntryList,
                    &HttpAnswer { status, body },
                );
                for entry in page
                    .map(|page| page.route_entrys.route_entry)
                    .unwrap_or_default()
                {
                    let row = entry.row("i-1");
                    let is_ours = |row: &TableRoute| entry.is_ours(row.destination, "i-1");
                    assert!(
                        !row.as_ref().is_some_and(is_ours)
                            || row.is_some_and(|row| row.target == RouteTarget::Own)
                    );
                }
            },
        );
    }
}
