//! The NetworkUnavailable condition follows the reported state of the network.

use std::time::Duration;

use flannel_store::{
    NetworkAvailability, SubnetManager as _,
    kube::{KubeManager, KubeOptions, Liveness, NodeIdentity},
};
use serde_json::{Value, json};

use crate::support::{BRISK, Cluster, follow, next};

fn condition(node: &Value) -> Option<(String, String)> {
    let all = node["status"]["conditions"].as_array()?;
    let ours = all
        .iter()
        .find(|condition| condition["type"] == "NetworkUnavailable")?;
    assert!(
        ours["lastTransitionTime"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z')),
        "{ours}"
    );
    Some((
        ours["status"].as_str()?.to_owned(),
        ours["reason"].as_str()?.to_owned(),
    ))
}

async fn becomes(cluster: &Cluster, status: &str, reason: &str) {
    let wanted = Some((status.to_owned(), reason.to_owned()));
    cluster
        .eventually("own", |node| (condition(node) == wanted).then_some(()))
        .await;
}

#[tokio::test]
async fn the_condition_is_false_while_the_network_is_available() {
    for cluster in Cluster::each("condition").await {
        cluster.add("own", Some("10.5.1.0/24"), &[]).await;
        let mut manager = cluster.manager("own");
        let availability = manager.network_availability();
        let mut events = follow(manager).await;
        assert_eq!(next(&mut events).await, "=");
        assert_eq!(
            condition(&cluster.node("own").await),
            None,
            "not a word before"
        );
        availability.set(true);
        becomes(&cluster, "False", "FlannelIsUp").await;
        availability.set(false);
        becomes(&cluster, "True", "FlannelIsDown").await;
        availability.set(true);
        becomes(&cluster, "False", "FlannelIsUp").await;
        // A recreated Node needs the condition as well.
        cluster.remove("own").await;
        cluster.add("own", Some("10.5.1.0/24"), &[]).await;
        becomes(&cluster, "False", "FlannelIsUp").await;
    }
}

/// As the route controller of a cloud does, where a route is missing that flannel does not need.
#[tokio::test]
async fn a_condition_that_another_client_wrote_is_set_right() {
    for cluster in Cluster::each("other-condition").await {
        cluster.add("own", Some("10.5.1.0/24"), &[]).await;
        let mut manager = cluster.manager("own");
        let availability = manager.network_availability();
        let mut events = follow(manager).await;
        assert_eq!(next(&mut events).await, "=");
        availability.set(true);
        becomes(&cluster, "False", "FlannelIsUp").await;
        for (available, status, reason, ours) in [
            (true, "True", "NoRouteCreated", ("False", "FlannelIsUp")),
            (false, "False", "RouteCreated", ("True", "FlannelIsDown")),
        ] {
            availability.set(available);
            becomes(&cluster, ours.0, ours.1).await;
            // More than once, too.
            for _ in 0..2 {
                let condition = json!({
                    "type": "NetworkUnavailable", "status": status, "reason": reason, "message": "",
                    "lastHeartbeatTime": "2026-01-02T03:04:05Z",
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                });
                cluster
                    .edit("own", json!({ "status": { "conditions": [condition] } }))
                    .await;
                becomes(&cluster, ours.0, ours.1).await;
            }
        }
    }
}

#[tokio::test]
async fn a_refused_condition_is_tried_again() {
    let cluster = Cluster::double("retried").await;
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    let mut manager = cluster.manager("own");
    let availability = manager.network_availability();
    let mut events = follow(manager).await;
    assert_eq!(next(&mut events).await, "=");
    let before = cluster.faults().count("PATCH");
    cluster.faults().change(|state| state.require("rotated"));
    availability.set(true);
    cluster.faults().asked("PATCH", before + 1).await;
    cluster.write_kubeconfig("rotated");
    becomes(&cluster, "False", "FlannelIsUp").await;
}

/// A write may reach the server and its answer get lost, so that the agent does not know the
/// condition of the Node.
#[tokio::test]
async fn a_write_without_an_answer_is_corrected() {
    let cluster = Cluster::double("unanswered").await;
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    let mut manager = cluster.manager_with(
        "own",
        Liveness {
            deadline: Duration::from_secs(2),
            ..BRISK
        },
    );
    let availability = manager.network_availability();
    let mut events = follow(manager).await;
    assert_eq!(next(&mut events).await, "=");
    availability.set(true);
    becomes(&cluster, "False", "FlannelIsUp").await;
    cluster.faults().change(|state| state.swallow_answers(true));
    availability.set(false);
    becomes(&cluster, "True", "FlannelIsDown").await;
    cluster
        .faults()
        .change(|state| state.swallow_answers(false));
    availability.set(true);
    becomes(&cluster, "False", "FlannelIsUp").await;
}

#[tokio::test]
async fn who_does_not_want_it_has_no_condition() {
    let cluster = Cluster::double("unwanted").await;
    let options = KubeOptions {
        set_network_unavailable: false,
        ..cluster.options()
    };
    let availability: NetworkAvailability =
        KubeManager::new(options, NodeIdentity::Node("own".to_owned()), BRISK)
            .network_availability();
    // The handle has no receiver and stores no value: it is that of a store without conditions.
    availability.set(true);
    assert_eq!(
        format!("{availability:?}"),
        format!("{:?}", NetworkAvailability::unpublished())
    );
}
