//! Flows of several nodes, merged, and asked for through the double of an API server.

use clap::Parser;
use flannel_cluster::testing::{
    api_double::{ApiDouble, PodAnswer},
    nodes::agent_pods,
};
use flannel_document::Document as _;
use flannel_terminal::color::Paint;
use serde_json::{Value, json};

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: ClusterFlowsOptions,
}

pub(super) fn options(flags: &str) -> ClusterFlowsOptions {
    Line::try_parse_from(["x"].into_iter().chain(flags.split_whitespace()))
        .expect("flags")
        .options
}

pub(super) fn end(end: &str, pod: Option<&str>) -> Value {
    let (address, port) = end.rsplit_once(':').expect("a port");
    let port: u16 = port.parse().expect("a number");
    json!({
        "address": address,
        "port": port,
        "kind": "pod",
        "pod": pod,
        "node": null,
        "service": null,
        "host": null,
    })
}

/// A row of `flows list -o json`: the ends as packets come in and as they leave.
fn flow(ends: [&str; 2], out: [&str; 2], way: &str, packets: u64) -> Value {
    json!({
        "protocol": "tcp",
        "source": ends[0],
        "destination": ends[1],
        "device": 3,
        "out_source": out[0],
        "out_destination": out[1],
        "out_device": 4,
        "way": way,
        "packets": packets,
        "bytes": packets * 100,
        "first_seen_ms": 4500,
        "last_seen_ms": 100,
        "age_ms": 400,
        "expires_in_ms": 1600,
        "mirror_expires_in_ms": null,
        "needs_mirror": true,
        "mtu": 1450,
        "tos": 0,
        "ttl": 64,
        "flow_label": 0,
        "state": "usable",
        "why": null,
        "generation": 1, "device_name": "veth1", "out_device_name": null,
        "from": end(ends[0], None), "to": end(ends[1], None), "out_from": end(out[0], None),
        "out_to": end(out[1], None),
    })
}

fn named(mut flow: Value, key: &str, pod: &str) -> Value {
    flow[key]["pod"] = json!(pod);
    flow
}

fn document(flows: &[Value], left_out: usize) -> Value {
    json!({ "schema_version": 1, "flows": flows, "left_out": left_out })
}

fn output(document: &Value) -> PodAnswer {
    PodAnswer::Output(document.to_string())
}

async fn asked(answers: Vec<Option<PodAnswer>>, flags: &str) -> (ClusterFlows, Vec<String>) {
    let double = ApiDouble::with_answers(answers).await;
    let pods = agent_pods();
    let report = ask(&double.client, &pods, &options(flags))
        .await
        .expect("a list of nodes");
    let command = double
        .objects()
        .commands
        .first()
        .map(|(_, words)| words.clone())
        .unwrap_or_default();
    (report, command)
}

const CLIENT: &str = "10.244.1.5:40000";
const SERVICE: &str = "10.96.0.1:80";
const SERVER: &str = "10.244.2.7:8080";

/// A flow through a Service, as the nodes of both ends have it.
fn both_sides() -> [Value; 2] {
    let sent = flow([CLIENT, SERVICE], [CLIENT, SERVER], "tunnel", 20);
    let received = flow([CLIENT, SERVER], [CLIENT, SERVER], "pod", 21);
    [
        named(named(sent, "from", "shop/web"), "out_from", "shop/web"),
        named(received, "to", "shop/db"),
    ]
}

#[tokio::test]
async fn a_flow_that_two_nodes_know_is_one_row_with_the_names_of_both() {
    let [sent, received] = both_sides();
    for (answers, nodes) in [
        ([&sent, &received], ["n1", "n2"]),
        ([&received, &sent], ["n2", "n1"]),
    ] {
        let answers = answers.map(|flow| Some(output(&document(std::slice::from_ref(flow), 0))));
        let (report, _) = asked(answers.into(), "").await;
        let [row] = report.flows.as_slice() else {
            panic!("{report:#?}")
        };
        assert_eq!(row.nodes, nodes, "the sender's first");
        assert_eq!(
            row.flow.to.address.to_string(),
            "10.96.0.1",
            "as the sender's node has it"
        );
        assert_eq!(
            row.flow.out_to.pod.as_deref(),
            Some("shop/db"),
            "as the receiver's node knows"
        );
        assert_eq!(
            (row.flow.flow.flow.packets, report.left_out, report.complete),
            (20, 0, true)
        );
    }
}

#[tokio::test]
async fn the_way_back_through_a_service_is_one_row_too() {
    let sent = flow([SERVER, CLIENT], [SERVER, CLIENT], "direct", 9);
    let received = flow([SERVER, CLIENT], [SERVICE, CLIENT], "pod", 9);
    let (report, _) = asked(
        vec![
            Some(output(&document(&[received], 0))),
            Some(output(&document(&[sent], 0))),
        ],
        "",
    )
    .await;
    let nodes: Vec<_> = report.flows.iter().map(|row| row.nodes.join(",")).collect();
    assert_eq!(nodes, ["n2,n1"]);
}

#[tokio::test]
async fn the_busiest_flows_are_shown_and_the_others_counted() {
    let flows = |node: u64| -> Vec<Value> {
        let source = |port: u64| format!("10.244.{node}.5:{port}");
        (1..=3)
            .rev()
            .map(|port| {
                flow(
                    [&source(port), SERVER],
                    [&source(port), SERVER],
                    "tunnel",
                    port * node,
                )
            })
            .collect()
    };
    let answers = vec![
        Some(output(&document(&flows(1), 5))),
        Some(output(&document(&flows(10), 0))),
    ];
    let (report, command) = asked(answers, "--rows=2 --proto=tcp --pod=web -N shop").await;
    let packets: Vec<_> = report
        .flows
        .iter()
        .map(|row| row.flow.flow.flow.packets)
        .collect();
    assert_eq!(
        (packets, report.left_out),
        (vec![30, 20], 9),
        "5 there and 4 here"
    );
    assert_eq!(
        (report.nodes[0].flows, report.nodes[1].flows),
        (Some(8), Some(3))
    );
    let words =
        "flannel-agent flows list --output=json --rows=2 --proto=tcp --pod=web --namespace=shop";
    assert_eq!(command.join(" "), words);
    let text = report.text(Paint(false));
    assert!(
        text.ends_with("\n9 more, which --rows leaves out\n"),
        "{text}"
    );
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_named_and_stock_flannel_is_not_an_error() {
    let [sent, _] = both_sides();
    let answers = vec![
        Some(output(&document(&[sent], 0))),
        Some(PodAnswer::Forbidden),
        Some(PodAnswer::NoProgram),
        None,
    ];
    let (report, _) = asked(answers, "").await;
    assert!(!report.complete);
    let text = report.text(Paint(false));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "4 nodes: 1 answered, 2 did not, 1 with stock flannel"
    );
    assert!(
        lines[1].starts_with("n2: no answer: no command can be run in pod pod-n2: "),
        "{text}"
    );
    assert_eq!(
        lines[2],
        "n4: no answer: no pod of flannel in namespace kube-flannel"
    );
    let table = "\
NODES  PROTO  FLOW                                               WAY     PACKETS  BYTES   LAST   \
STATE
n1     tcp    shop/web:40000 -> 10.96.0.1:80 (10.244.2.7:8080)  tunnel  20       2.0 kB  0.1 s  \
usable
";
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(squeezed(&lines[4..].join("\n")), squeezed(table));
    let (known, _) = asked(
        vec![Some(output(&document(&[], 0))), Some(PodAnswer::NoProgram)],
        "",
    )
    .await;
    assert!(known.complete, "{known:#?}");
}

#[tokio::test]
async fn a_newer_agent_s_state_of_a_flow_does_not_lose_the_flow() {
    let [mut sent, _] = both_sides();
    (sent["state"], sent["more"]) = (json!("a_new_reason"), json!(1));
    let (report, _) = asked(vec![Some(output(&document(&[sent], 0)))], "").await;
    assert_eq!(report.flows[0].flow.flow.flow.state, "unknown");
}

#[test]
fn events_have_no_rows_and_lists_no_end() {
    for flags in [
        "--follow --rows=3",
        "--count=3",
        "--rate=3",
        "--verdict=dropped",
    ] {
        let line = ["x"].into_iter().chain(flags.split_whitespace());
        assert!(Line::try_parse_from(line).is_err(), "{flags}");
    }
    assert!(
        !options("")
            .command()
            .iter()
            .any(|word| word.contains("follow")),
        "a list"
    );
}

#[test]
fn filters_by_name_need_names() {
    for flags in ["--pod=a", "-N shop", "--node=n1", "--service=db"] {
        assert!(
            options(&format!("--no-names {flags}")).mistake().is_some(),
            "{flags}"
        );
    }
    assert!(options("--no-names --port=80").mistake().is_none());
}

#[test]
fn the_schema_is_that_of_the_type() {
    flannel_json_schema::check::<ClusterFlows>(ClusterFlows::NAME, ClusterFlows::SCHEMA_VERSION);
}
