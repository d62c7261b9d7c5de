//! A large cluster: five thousand Nodes of 16 KiB each, and what the agent's process makes of them.

use std::io::Write as _;

use flannel_tests::{
    agent::{NOT_AS_SHIPPED, is_as_shipped},
    not_run,
};
use serde_json::Value;

use super::{
    api_server::{LIST, State},
    nodes::{LargeNode, new_node},
    support::{Pod, in_pod},
};

const NODES: u32 = 5000;
/// The most resident memory of the process (`VmRSS`) in KiB, and below it the most that may be
/// anonymous (`RssAnon`), that is, not pages of the executable.
const LIMIT: u64 = 30 << 10;
const OWN_LIMIT: u64 = 24 << 10;

/// A Node of that number.
fn large_node(n: u32, heartbeat: u32) -> Value {
    let (high, low) = (n / 256, n % 256);
    let node = LargeNode {
        name: format!("node-{n:05}"),
        subnet: format!("10.{}.{low}.0/24", 64 + high),
        public_ip: format!("172.16.{high}.{low}"),
        mac: format!("02:00:00:00:{high:02x}:{low:02x}"),
        heartbeat,
    };
    node.json()
}

/// Configures the network, and puts all Nodes into the double.
fn put_large_nodes(pod: &Pod) {
    assert!(
        large_node(4999, 0).to_string().len() >= 16 << 10,
        "{}",
        large_node(4999, 0).to_string().len()
    );
    std::fs::write(
        "/run/net-conf.json",
        r#"{"Network":"10.64.0.0/10","Backend":{"Type":"vxlan"}}"#,
    )
    .expect("written");
    pod.double.change(|state| {
        for n in 0..NODES {
            state.put(large_node(n, 0));
        }
        state.put(new_node("own", "10.127.0.0/24"));
        state.forget();
    });
}

#[test]
fn five_thousand_nodes_fit_and_their_heartbeats_cost_nothing() {
    in_pod(async |mut pod| {
        put_large_nodes(&pod);
        pod.start();
        let all = |status: &Value| {
            status["ready"] == true
                && status["peers"]
                    .as_array()
                    .is_some_and(|all| all.len() == 5000)
        };
        let status = pod.until("five thousand peers", all).await;
        assert_eq!(status["store"]["last_change"], Value::Null);
        let started = pod.memory("VmRSS");

        for n in 0..NODES {
            pod.double.change(|state| state.put(large_node(n, 1)));
            tokio::task::yield_now().await;
        }
        let version = pod.double.change(|state| state.version);
        pod.double.change(State::end_watches);
        // The watch goes on from there: everything before was read.
        pod.double
            .asked(&format!("resourceVersion={version}"), 1)
            .await;
        let status = pod
            .until("the watch", |status| status["store"]["in_sync"] == true)
            .await;
        assert_eq!(
            status["store"]["last_change"],
            Value::Null,
            "no heartbeat went further than the store's task"
        );
        assert_eq!(pod.double.count(LIST), 1, "listed once");

        let [now, peak, heap, file] =
            ["VmRSS", "VmHWM", "RssAnon", "RssFile"].map(|name| pod.memory(name));
        let report = format!(
            "5,001 nodes of 16 KiB: VmRSS {started} KiB after start, {now} KiB after a heartbeat \
             of each (RssAnon {heap} KiB, RssFile {file} KiB); VmHWM {peak} KiB"
        );
        println!("{report}");
        writeln!(std::io::stderr(), "{report}").expect("standard error");
        assert!(heap <= OWN_LIMIT, "{report}");
        if is_as_shipped() {
            assert!(now <= LIMIT, "{report}");
        } else {
            not_run(
                "the memory of 5,000 nodes with the executable",
                NOT_AS_SHIPPED,
            );
        }
    });
}
