//! The pods of a node, listed for the names in flows.

use flannel_store::kube::PodLister;
use serde_json::json;

use crate::support::Cluster;

#[tokio::test]
async fn the_pods_of_a_node_are_listed_by_one_request_without_a_watch() {
    let cluster = Cluster::double("podnames").await;
    let double = cluster.faults();
    double.change(|state| {
        state.put_local_pod("web", "a", &json!({}), &["10.5.1.2", "fd00:5:1::2"]);
        state.put_local_pod("waits", "a", &json!({}), &[]);
        state.put_local_pod("db", "b", &json!({}), &["10.5.2.2"]);
    });
    let mut lister = PodLister::new(cluster.options());
    let names = lister.pods_of("a").await.expect("a list");
    let shown: Vec<_> = names
        .iter()
        .map(|(address, name)| format!("{address} {name}"))
        .collect();
    assert_eq!(
        shown,
        ["10.5.1.2 default/web", "fd00:5:1::2 default/web"],
        "of that node, with addresses"
    );
    assert!(lister.pods_of("c").await.expect("a list").is_empty());
    assert_eq!(double.count("/pods"), 2, "one request each");
}

#[tokio::test]
async fn a_refusal_says_which_right_is_missing() {
    let cluster = Cluster::double("podnamesrefused").await;
    cluster.faults().change(|state| state.refuse_pods(true));
    let error = PodLister::new(cluster.options())
        .pods_of("a")
        .await
        .expect_err("a refusal");
    assert!(
        error.is_refusal()
            && error
                .to_string()
                .contains("for names of pods in flows pods list"),
        "{error}"
    );
}
