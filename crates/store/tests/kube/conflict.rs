//! Tests of two Nodes that claim the same resource: which one is accepted, and the Event on ours.

use flannel_store::{LeaseSet, NodeReport, StoreEvent, SubnetManager as _, kube::KubeManager};
use serde_json::json;
use tokio::{sync::mpsc, time::timeout};

use crate::support::{Cluster, PATIENCE, attrs, config, follow, request};

fn set() -> LeaseSet {
    let mut set = LeaseSet::new(&config(), KubeManager::PRECEDENCE, attrs(1));
    set.set_own_key("10.5.1.0-24".parse().expect("a key"));
    set
}

async fn take(events: &mut mpsc::Receiver<StoreEvent>, set: &mut LeaseSet) {
    let event = timeout(PATIENCE, events.recv())
        .await
        .expect("an event in time")
        .expect("a running manager");
    assert!(set.apply(event));
}

fn peers(set: &LeaseSet) -> Vec<String> {
    set.resolve()
        .peers
        .iter()
        .map(|peer| format!("{} {}", peer.subnet, peer.public_ip))
        .collect()
}

/// As root of a node can: by the kubelet's rights it writes any MAC on its own Node.
#[tokio::test]
async fn a_newer_node_that_copies_a_mac_gets_no_packets_of_the_older_one() {
    let cluster = Cluster::double("copied").await;
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    for (node, created) in [(2, "2026-03-01T00:00:00Z"), (3, "2026-02-01T00:00:00Z")] {
        cluster.add_peer(node).await;
        cluster
            .edit(
                &format!("peer{node}"),
                json!({ "metadata": { "creationTimestamp": created } }),
            )
            .await;
    }
    let (mut events, mut set) = (follow(cluster.manager("own")).await, set());
    take(&mut events, &mut set).await;
    let both = ["10.5.2.0/24 192.0.2.2", "10.5.3.0/24 192.0.2.3"];
    assert_eq!(peers(&set), both);

    cluster
        .annotate(
            "peer2",
            "backend-data",
            Some(r#"{"VNI":1,"VtepMAC":"02:00:00:00:00:03"}"#),
        )
        .await;
    take(&mut events, &mut set).await;
    assert_eq!(
        peers(&set),
        ["10.5.3.0/24 192.0.2.3"],
        "the older one keeps it"
    );
    let reasons: Vec<_> = set
        .resolve()
        .rejected
        .iter()
        .map(ToString::to_string)
        .collect();
    let older = cluster.node_name("peer3");
    assert!(
        reasons.len() == 1 && reasons[0].contains(&format!("is that of the older Node {older:?}")),
        "{reasons:?}"
    );
    // Not Ready is not gone: others may write that, and its pods may run.
    let condition = json!([{ "type": "Ready", "status": "False" }]);
    cluster
        .edit("peer3", json!({ "status": { "conditions": condition } }))
        .await;
    cluster.remove("peer3").await;
    take(&mut events, &mut set).await;
    assert_eq!(
        peers(&set),
        ["10.5.2.0/24 192.0.2.2"],
        "until it is deleted"
    );
}

/// A set in which another Node has our MAC.
async fn copied(cluster: &Cluster) -> LeaseSet {
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    cluster.add_peer(2).await;
    cluster
        .annotate(
            "peer2",
            "backend-data",
            Some(r#"{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}"#),
        )
        .await;
    let (mut events, mut set) = (follow(cluster.manager("own")).await, set());
    take(&mut events, &mut set).await;
    assert_eq!(set.changes().refused.len(), 1);
    set
}

/// As the agent reports them.
fn conflicts(set: &LeaseSet) -> impl Iterator<Item = NodeReport> {
    set.conflicts_with_us().map(|(lease, _)| {
        let message = lease.to_string();
        NodeReport {
            reason: "DuplicateVtepMAC",
            identity: message.clone(),
            message,
        }
    })
}

#[tokio::test]
async fn a_node_that_claims_our_mac_makes_one_event_on_our_node() {
    let cluster = Cluster::double("event").await;
    let set = copied(&cluster).await;
    let mut manager = cluster.manager("own");
    manager.acquire(&request(1)).await.expect("a lease");
    let reports = manager.node_reports();
    for _ in 0..3 {
        reports.set(conflicts(&set));
    }
    let written = cluster.faults().wrote_events(1).await;
    let own = cluster.node_name("own");
    assert_eq!(written[0]["involvedObject"]["name"], json!(own));
    assert_eq!(
        (&written[0]["reason"], &written[0]["type"]),
        (&json!("DuplicateVtepMAC"), &json!("Warning"))
    );
    let message = written[0]["message"].as_str().unwrap_or_default();
    assert!(
        message.contains(&cluster.node_name("peer2"))
            && message.contains("02:00:00:00:00:01 is ours"),
        "{message}"
    );
    drop(reports);

    // The server has it still when the next agent comes to the same conclusion.
    let mut manager = cluster.manager("own");
    manager.acquire(&request(1)).await.expect("a lease");
    manager.node_reports().set(conflicts(&set));
    cluster.faults().asked("POST", 2).await;
    assert_eq!(cluster.faults().wrote_events(1).await, written);
}

#[tokio::test]
async fn a_node_with_a_lowered_mode_makes_an_event_too() {
    let cluster = Cluster::double("lowered").await;
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    let mut manager = cluster.manager("own");
    manager.acquire(&request(1)).await.expect("a lease");
    let reports = manager.node_reports();
    let message = "the datapath mode is kernel, not fast".to_owned();
    let identity = message.clone();
    reports.set([NodeReport {
        reason: "DatapathModeLowered",
        identity,
        message: message.clone(),
    }]);
    let written = cluster.faults().wrote_events(1).await;
    assert_eq!(
        (&written[0]["reason"], &written[0]["message"]),
        (&json!("DatapathModeLowered"), &json!(message))
    );
}

/// A role of before, without `events: create`.
#[tokio::test]
async fn an_event_that_is_refused_is_written_once_it_may_be() {
    let cluster = Cluster::double("noevent").await;
    let set = copied(&cluster).await;
    cluster.faults().change(|state| state.refuse_events(true));
    let mut manager = cluster.manager("own");
    manager.acquire(&request(1)).await.expect("a lease");
    let reports = manager.node_reports();
    reports.set(conflicts(&set));
    cluster.faults().asked("POST", 1).await;
    cluster.faults().change(|state| state.refuse_events(false));
    assert_eq!(cluster.faults().wrote_events(1).await.len(), 1);
}
