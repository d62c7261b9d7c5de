//! The board of documents.

use flannel_document::Document as _;
use flannel_flows::rows::FlowWay;

use super::*;
use crate::top::{
    board::{DocumentState, NodeRates},
    merge::PairRates,
};

fn with(mut document: Value, key: &str, value: Value) -> Value {
    document[key] = value;
    document
}

fn order(board: &ClusterBoard) -> Vec<&str> {
    board.nodes.iter().map(|row| row.node.as_str()).collect()
}

#[test]
fn the_busiest_node_is_first_and_a_silent_one_last() {
    let silent = StreamState::Silent("it hangs".to_owned());
    let board = board(vec![
        live(document(10.0)),
        silent,
        live(document(30.0)),
        StreamState::StockFlannel,
    ]);
    assert_eq!(order(&board), ["n3", "n1", "n2", "n4"]);
    let states: Vec<_> = board.nodes.iter().map(|row| row.state).collect();
    let expected = [
        DocumentState::Live,
        DocumentState::Live,
        DocumentState::NoAnswer,
        DocumentState::StockFlannel,
    ];
    assert_eq!(states, expected);
}

#[test]
fn a_node_has_the_sums_of_its_programs() {
    let drops = json!([
        { "program": "from_underlay", "reason": "a", "packets_per_second": 2.0, "packets": 9 },
        { "program": "from_underlay", "reason": "b", "packets_per_second": 1.5, "packets": 9 },
    ]);
    let board = board(vec![live(with(document(10.0), "drops", drops))]);
    let NodeRates {
        packets_per_second,
        bytes_per_second,
        fast_share,
        drops_per_second,
        problems,
        ..
    } = &board.nodes[0];
    assert_eq!(
        (*packets_per_second, *bytes_per_second),
        (Some(10.0), Some(1000.0))
    );
    assert_eq!(
        (*fast_share, *drops_per_second, *problems),
        (Some(0.5), Some(3.5), Some(0))
    );
}

#[test]
fn a_value_that_no_document_has_is_not_zero() {
    let mut unknown = document(10.0);
    unknown["programs"][1]["packets_per_second"] = Value::Null;
    let alone = with(document(0.0), "ready", json!(null));
    let board = board(vec![live(unknown), live(alone), StreamState::Asked]);
    let row = |name: &str| {
        board
            .nodes
            .iter()
            .find(|row| row.node == name)
            .expect("a row")
    };
    assert_eq!(
        (row("n1").packets_per_second, row("n1").fast_share),
        (None, None)
    );
    assert_eq!(
        (row("n2").packets_per_second, row("n2").fast_share),
        (Some(0.0), None),
        "no packet has no share"
    );
    assert_eq!(
        (row("n2").problems, row("n3").problems),
        (None, None),
        "nobody was asked for them"
    );
    let text = serde_json::to_string(&board).expect("JSON");
    let asked =
        r#"{"node":"n3","state":"asked","reason":null,"mode":null,"packets_per_second":null,"#;
    assert!(text.contains(asked), "{text}");
}

#[test]
fn a_pair_has_the_name_of_its_peer_and_the_rate_of_the_sender() {
    let first = with(
        document(1.0),
        "peers",
        json!([
            peer(2, Some(40.0), Some(5.0)),
            peer(9, Some(1.0), Some(0.0))
        ]),
    );
    let second = with(document(1.0), "peers", json!([peer(1, None, Some(35.0))]));
    let board = board(vec![live(first), live(second)]);
    let pairs: Vec<_> = board
        .pairs
        .iter()
        .map(
            |PairRates {
                 node,
                 peer,
                 packets_per_second,
                 ..
             }| (node.as_str(), peer.as_str(), *packets_per_second),
        )
        .collect();
    let expected = [
        ("n1", "n2", Some(40.0)),
        // n2 does not know what it sends, and n1 knows what it receives.
        ("n2", "n1", Some(5.0)),
        ("n1", "192.0.2.9", Some(1.0)),
    ];
    assert_eq!(pairs, expected, "the sender's 40, not the receiver's 35");
}

#[test]
fn a_pair_without_a_rate_is_shown_without_one() {
    let document = with(document(1.0), "peers", json!([peer(2, None, None)]));
    let board = board(vec![live(document)]);
    assert_eq!(board.pairs.len(), 1, "{board:?}");
    assert_eq!(
        (board.pairs[0].packets_per_second, board.pairs[0].flows),
        (None, Some(2))
    );
}

#[test]
fn both_families_of_a_peer_are_one_pair() {
    let mut other = peer(2, Some(2.0), Some(0.0));
    other["subnet"] = json!("fd00:2::/64");
    let board = board(vec![live(with(
        document(1.0),
        "peers",
        json!([peer(2, Some(40.0), Some(0.0)), other]),
    ))]);
    assert_eq!(board.pairs.len(), 1, "{board:?}");
    assert_eq!(
        (board.pairs[0].packets_per_second, board.pairs[0].flows),
        (Some(42.0), Some(4))
    );
}

#[test]
fn a_flow_that_two_nodes_know_is_one_row() {
    let (client, server) = ("10.244.1.5:40000", "10.244.2.7:80");
    let sent = flow(client, "10.96.0.1:80", Some(server), "tunnel", 20.0);
    let received = flow(client, server, None, "pod", 21.0);
    let local = flow("10.244.2.8:1", "10.244.2.9:2", None, "pod", 90.0);
    let board = board(vec![
        live(with(document(1.0), "flows", json!([sent]))),
        live(with(document(1.0), "flows", json!([received, local]))),
    ]);
    let rows: Vec<_> = board
        .flows
        .iter()
        .map(|row| (row.nodes.join(","), row.flow.packets_per_second))
        .collect();
    assert_eq!(
        rows,
        [
            ("n2".to_owned(), Some(90.0)),
            ("n1,n2".to_owned(), Some(21.0))
        ]
    );
    assert_eq!(
        board.flows[1].flow.destination, "10.96.0.1:80",
        "as the sender's node has it"
    );
}

#[test]
fn the_source_s_node_comes_first_in_any_order() {
    let sent = flow("10.244.2.5:4", "10.244.1.7:80", None, "direct", 1.0);
    let received = flow("10.244.2.5:4", "10.244.1.7:80", None, "pod", 1.0);
    let board = board(vec![
        live(with(document(1.0), "flows", json!([received]))),
        live(with(document(1.0), "flows", json!([sent]))),
    ]);
    assert_eq!(
        (board.flows[0].nodes.join(","), board.flows[0].flow.way),
        ("n2,n1".to_owned(), FlowWay::Direct)
    );
}

#[test]
fn pairs_and_flows_are_limited_after_they_are_ordered() {
    let flows: Vec<Value> = (1..=9)
        .map(|port| {
            flow(
                &format!("10.244.1.5:{port}"),
                "10.244.2.7:80",
                None,
                "tunnel",
                f64::from(port),
            )
        })
        .collect();
    let nodes = [(
        "n1".to_owned(),
        live(with(document(1.0), "flows", json!(flows))),
    )];
    let board = ClusterBoard::new(&nodes, &names(), 2);
    let sources: Vec<_> = board
        .flows
        .iter()
        .map(|row| row.flow.source.as_str())
        .collect();
    assert_eq!(sources, ["10.244.1.5:9", "10.244.1.5:8"]);
}

#[test]
fn the_first_problem_of_each_node_comes_first() {
    let two = with(document(1.0), "problems", json!(["a", "b"]));
    let two = with(two, "codes", json!(["silent_peer"]));
    let stale = with(
        with(document(1.0), "current", json!(false)),
        "heartbeat_age",
        json!(75.4),
    );
    let board = board(vec![
        live(two),
        live(stale),
        StreamState::Silent("it hangs".to_owned()),
    ]);
    let lines: Vec<String> = board
        .problems
        .iter()
        .map(|problem| format!("{}: {}", problem.node, problem.text))
        .collect();
    let expected = [
        "n1: a",
        "n2: last heartbeat of the agent: 75 s ago; every packet takes the kernel's path",
        "n3: no answer: it hangs",
        "n1: b",
    ];
    assert_eq!(lines, expected);
    let codes: Vec<_> = board
        .problems
        .iter()
        .map(|problem| problem.code.as_deref())
        .collect();
    assert_eq!(
        codes,
        [Some("silent_peer"), None, None, None],
        "n1 has an agent that names one of two"
    );
    assert_eq!(
        board
            .nodes
            .iter()
            .find(|row| row.node == "n1")
            .expect("a row")
            .problems,
        Some(2)
    );
}

#[test]
fn a_filter_keeps_the_rows_with_its_text() {
    let peers = json!([peer(2, Some(1.0), Some(0.0)), peer(3, Some(1.0), Some(0.0))]);
    let mut board = board(vec![
        live(with(document(1.0), "peers", peers)),
        live(document(1.0)),
    ]);
    board.retain("n2");
    assert_eq!((board.nodes.len(), board.pairs.len()), (1, 1));
    assert_eq!(
        (board.nodes[0].node.as_str(), board.pairs[0].peer.as_str()),
        ("n2", "n2")
    );
}

#[test]
fn the_schema_is_that_of_the_types() {
    flannel_json_schema::check::<ClusterBoard>(ClusterBoard::NAME, ClusterBoard::SCHEMA_VERSION);
}
