//! Answers of the form that Amazon documents, from a server that accepts only signed requests.

use aws_credential_types::Credentials;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::plan::RouteTarget;

const SUBNET: &str = "10.5.7.0/24";

/// Reads a request; its body. Panics unless it is a signed form.
async fn read(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    loop {
        let mut part = [0; 4096];
        let length = stream.read(&mut part).await.expect("a request");
        text += std::str::from_utf8(&part[..length]).expect("a text");
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let head = head.to_lowercase();
        let size = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .expect("a size");
        if body.len() < size.parse().expect("a number") {
            continue;
        }
        assert!(
            head.starts_with("post / http/1.1\r\n") && head.contains("x-amz-date: "),
            "{head}"
        );
        assert!(
            head.contains("authorization: aws4-hmac-sha256 credential=akid/"),
            "{head}"
        );
        assert!(
            head.contains("/eu-central-1/ec2/aws4_request, signedheaders="),
            "{head}"
        );
        return body.to_owned();
    }
}

/// A client whose next requests get these answers: the status and the code of an error, or a body.
async fn client(answers: Vec<(u16, &'static str)>) -> (Aws, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let requests = tokio::spawn(async move {
        let mut requests = Vec::new();
        for (status, text) in answers {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            requests.push(read(&mut stream).await);
            let error =
                format!("<Response><Errors><Error><Code>{text}</Code></Error></Errors></Response>");
            let body = if text.contains('<') { text } else { &error };
            let answer = format!(
                "HTTP/1.1 {status} Of Amazon\r\nContent-Length: {}\r\nConnection: \
                 close\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.expect("a reader");
        }
        requests
    });
    let api = Api {
        endpoint,
        region: "eu-central-1".to_owned(),
    };
    let credentials =
        CredentialSource::Fixed(Credentials::new("AKID", "secret", None, None, "test"));
    let aws = Aws {
        http: Http::new().expect("a client"),
        api,
        credentials,
        requests: RequestCounts::default(),
    };
    (aws, requests)
}

fn place() -> VpcPlace {
    let [id, subnet, vpc] = ["eni-1", "subnet-1", "vpc-1"].map(str::to_owned);
    VpcPlace {
        interface: NetworkInterface { id, subnet, vpc },
        named: Vec::new(),
    }
}

fn step(change: RouteChange) -> RouteStep {
    RouteStep {
        table: "rtb-1".to_owned(),
        destination: SUBNET.parse().expect("a prefix"),
        change,
    }
}

#[tokio::test]
async fn a_full_table_is_explained_with_its_size() {
    let (mut aws, requests) = client(vec![(400, "RouteLimitExceeded")]).await;
    let error = aws
        .apply(&place(), &step(RouteChange::Create { routes: 500 }))
        .await
        .expect_err("full")
        .to_string();
    assert!(
        error.starts_with(
            "route table rtb-1 is full with 500 routes (RouteLimitExceeded): raise the"
        ),
        "{error}"
    );
    let expected = "Action=CreateRoute&Version=2016-11-15&RouteTableId=rtb-1&\
        DestinationCidrBlock=10.5.7.0%2F24&\
        NetworkInterfaceId=eni-1";
    assert_eq!(requests.await.expect("requests"), [expected]);
}

#[tokio::test]
async fn requests_are_counted_by_their_outcome() {
    let answers = vec![
        (503, "RequestLimitExceeded"),
        (403, "UnauthorizedOperation"),
        (200, "<a/>"),
    ];
    let (mut aws, requests) = client(answers).await;
    for is_ok in [false, false, true, false] {
        let result = aws
            .apply(
                &place(),
                &step(RouteChange::Replace {
                    before: RouteTarget::Own,
                }),
            )
            .await;
        assert_eq!(result.is_ok(), is_ok, "{result:?}");
    }
    assert_eq!(
        requests.await.expect("requests").len(),
        3,
        "the last found no server"
    );
    let expected = RequestCounts {
        done: 1,
        refused: 1,
        throttled: 1,
        failed: 1,
    };
    assert_eq!(
        (aws.take_requests(), aws.take_requests()),
        (expected, RequestCounts::default())
    );
}

#[tokio::test]
async fn a_route_that_is_gone_needs_no_removal() {
    let (mut aws, _requests) = client(vec![(400, "InvalidRoute.NotFound")]).await;
    let removal = RouteChange::Delete {
        reason: crate::plan::Removal::Blackhole,
    };
    aws.apply(&place(), &step(removal)).await.expect("gone");
}

#[tokio::test]
async fn the_main_table_serves_a_subnet_without_one() {
    let none = "<DescribeRouteTablesResponse><routeTableSet/></DescribeRouteTablesResponse>";
    let one =
        "<a><routeTableSet><item><routeTableId>rtb-9</routeTableId></item></routeTableSet></a>";
    let (mut aws, requests) = client(vec![(200, none), (200, one), (200, none), (200, none)]).await;
    let tables = aws.tables(&place()).await.expect("a table");
    assert_eq!(
        tables
            .iter()
            .map(|table| table.id.as_str())
            .collect::<Vec<_>>(),
        ["rtb-9"]
    );
    let error = aws
        .tables(&place())
        .await
        .expect_err("no table")
        .to_string();
    assert!(
        error.starts_with("the subnet subnet-1 has no route table, and the VPC vpc-1 no main one"),
        "{error}"
    );
    let requests = requests.await.expect("requests");
    assert!(
        requests[0].ends_with("&Filter.1.Name=association.subnet-id&Filter.1.Value.1=subnet-1"),
        "{requests:?}"
    );
    let main = "&Filter.1.Name=vpc-id&Filter.1.Value.1=vpc-1&Filter.2.Name=association.main&\
        Filter.2.Value.1=true";
    assert!(requests[1].ends_with(main), "{requests:?}");
}

#[tokio::test]
async fn a_recorded_route_that_leads_elsewhere_stays() {
    let other = "<a><routeTableSet><item><routeTableId>rtb-1</routeTableId><routeSet><item>\
                 <destinationCidrBlock>10.5.7.0/24</destinationCidrBlock><networkInterfaceId>eni-2\
                 </networkInterfaceId><origin>CreateRoute</origin></item></routeSet></item>\
                 </routeTableSet></a>";
    let (mut aws, requests) =
        client(vec![(200, other), (400, "InvalidRouteTableID.NotFound")]).await;
    let route = aws.record(&place(), "rtb-1", SUBNET.parse().expect("a prefix"));
    aws.undo(&route).await.expect("nothing to do");
    aws.undo(&route).await.expect("no table");
    let requests = requests.await.expect("requests");
    assert!(
        requests
            .iter()
            .all(|request| request.contains("Action=DescribeRouteTables")),
        "{requests:?}"
    );
}
