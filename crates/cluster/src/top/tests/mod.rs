//! Documents of several nodes: merged, drawn, and streamed by the double of an API server.

mod board;
mod frame;
mod streams;

use serde_json::{Value, json};

use super::{
    board::ClusterBoard,
    names::NodeNames,
    stream::{Reading, StreamState},
};
use crate::{members::ClusterNode, testing::nodes::node_json};

/// A document of a node in mode `fast`, whose programs see this number of packets a second.
fn document(packets: f64) -> Value {
    let program = |name: &str, packets: f64, share: Option<f64>| {
        json!({
            "program": name,
            "packets_per_second": packets,
            "bytes_per_second": packets * 100.0,
            "fast_share": share,
        })
    };
    json!({
        "time": 1, "mode": "fast", "heartbeat_age": 0.5, "current": true, "agent": "agent 0.1.0 \
            ready", "ready": true,
        "problems": [], "peers": [], "flows": [], "drops": [], "kernel": [],
        "programs": [program("from_pod", packets, Some(0.5)), program("to_tunnel", 0.0, None)],
    })
}

fn peer(number: usize, to: Option<f64>, from: Option<f64>) -> Value {
    json!({
        "subnet": format!("10.244.{number}.0/24"),
        "node": format!("192.0.2.{number}"),
        "path": "tunnel",
        "flows": 2,
        "to_packets_per_second": to, "from_packets_per_second": from, "packets": 7,
    })
}

fn flow(
    source: &str,
    destination: &str,
    translated: Option<&str>,
    way: &str,
    packets: f64,
) -> Value {
    json!({
        "protocol": "tcp",
        "source": source,
        "destination": destination,
        "translated": translated,
        "way": way,
        "packets_per_second": packets, "packets": 9, "state": "usable",
    })
}

fn live(document: Value) -> StreamState {
    StreamState::Live(Box::new(Reading::new(
        serde_json::from_value(document).expect("a document"),
        50,
    )))
}

/// The names of nodes n1 to n3.
fn names() -> NodeNames {
    let member = |index| ClusterNode {
        node: serde_json::from_value(node_json(index)).expect("a node"),
        pod: None,
    };
    NodeNames::new(&[1, 2, 3].map(member))
}

fn board(states: Vec<StreamState>) -> ClusterBoard {
    let nodes: Vec<_> = (1..)
        .map(|number| format!("n{number}"))
        .zip(states)
        .collect();
    ClusterBoard::new(&nodes, &names(), 50)
}
