//! Pods that opt out of mode `fast` by annotation: the store's report.

use std::{collections::BTreeMap, net::IpAddr};

use flannel_store::{
    OptOuts, PodOptOuts, SubnetManager as _,
    kube::{KubeManager, KubeOptions, NodeIdentity},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{BRISK, Cluster, Log, PATIENCE, State, request};

/// A manager that holds a lease, and what it says of pods.
async fn asked(cluster: &Cluster) -> (KubeManager, OptOuts) {
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    let mut manager = cluster.manager("own");
    manager.acquire(&request(1)).await.expect("a lease");
    let opt_outs = manager.opt_outs();
    (manager, opt_outs)
}

/// Waits until what is said is as wanted.
async fn until(opt_outs: &mut OptOuts, wanted: impl Fn(&PodOptOuts) -> bool) {
    let waiting = async {
        while !wanted(&opt_outs.latest()) {
            opt_outs.changed().await;
        }
    };
    let answer = timeout(PATIENCE, waiting).await;
    answer.unwrap_or_else(|_| panic!("in time; last: {:?}", opt_outs.latest()));
}

/// Returns the expected opt-outs: `default/<name>` by address.
fn out(pods: &[(&str, &str)]) -> BTreeMap<IpAddr, String> {
    pods.iter()
        .map(|(name, address)| {
            (
                address.parse().expect("an address"),
                format!("default/{name}"),
            )
        })
        .collect()
}

fn annotation(cluster: &Cluster, value: &str) -> Value {
    json!({ cluster.annotation("fast-path"): value, "other.example.com/fast-path": "false" })
}

#[tokio::test]
async fn pods_of_this_node_opt_out_and_in_again() {
    let cluster = Cluster::double("optout").await;
    let own = cluster.node_name("own");
    let (double, no) = (cluster.faults(), annotation(&cluster, "false"));
    double.change(|state| {
        state.put_local_pod("a", &own, &no, &["10.5.1.2", "fd00:5:1::2"]);
        state.put_local_pod("b", &own, &annotation(&cluster, "true"), &["10.5.1.3"]);
        state.put_local_pod("c", "another", &no, &["10.5.2.2"]);
        state.put_local_pod("d", &own, &no, &[]);
        state.put_local_pod("e", &own, &annotation(&cluster, "of"), &["10.5.1.5"]);
    });
    let (_manager, mut opt_outs) = asked(&cluster).await;
    assert_eq!(double.count("/pods"), 0, "nobody wants to know");
    opt_outs.want(true);
    opt_outs.first().await;
    let listed = out(&[("a", "10.5.1.2"), ("a", "fd00:5:1::2"), ("e", "10.5.1.5")]);
    assert_eq!(opt_outs.latest().out, listed);
    let names = out(&[
        ("a", "10.5.1.2"),
        ("a", "fd00:5:1::2"),
        ("b", "10.5.1.3"),
        ("e", "10.5.1.5"),
    ]);
    assert_eq!(
        opt_outs.latest().names,
        names,
        "those of this node with addresses, whatever they want"
    );

    double.change(|state| {
        state.put_local_pod("a", &own, &json!({}), &["10.5.1.2", "fd00:5:1::2"]);
        state.put_local_pod("b", &own, &no, &["10.5.1.3"]);
        state.put_local_pod("d", &own, &no, &["10.5.1.4"]);
        state.remove_local_pod("e");
    });
    let changed = out(&[("b", "10.5.1.3"), ("d", "10.5.1.4")]);
    until(&mut opt_outs, |report| report.out == changed).await;
    let names = out(&[
        ("a", "10.5.1.2"),
        ("a", "fd00:5:1::2"),
        ("b", "10.5.1.3"),
        ("d", "10.5.1.4"),
    ]);
    assert_eq!(opt_outs.latest().names, names);

    // An outage of the server withdraws no opt-out. A new list finds changes compacted during it.
    double.change(State::break_streams);
    double.change(|state| {
        state.remove_local_pod("b");
        state.compact();
    });
    let left = out(&[("d", "10.5.1.4")]);
    until(&mut opt_outs, |report| {
        report.out == left && report.problem.is_none()
    })
    .await;

    opt_outs.want(false);
    until(&mut opt_outs, |report| *report == PodOptOuts::default()).await;
}

/// Also of a pod that was out before, and once after a new listing too.
#[tokio::test]
async fn a_word_that_is_none_of_ours_is_logged_when_it_comes() {
    let (log, cluster) = (Log::of_this_thread(), Cluster::double("unclear").await);
    let (double, own) = (cluster.faults(), cluster.node_name("own"));
    let put = |state: &mut State, word: &str, address: &str| {
        state.put_local_pod("a", &own, &annotation(&cluster, word), &[address]);
    };
    double.change(|state| put(state, "false", "10.5.1.2"));
    let (_manager, mut opt_outs) = asked(&cluster).await;
    opt_outs.want(true);
    // Each address is the sign that the word with it was read.
    for (word, address) in [
        ("flase", "10.5.1.3"),
        ("flase", "10.5.1.4"),
        ("off", "10.5.1.5"),
    ] {
        double.change(|state| put(state, word, address));
        until(&mut opt_outs, |report| report.out == out(&[("a", address)])).await;
    }
    double.change(State::break_streams);
    double.change(|state| {
        put(state, "off", "10.5.1.6");
        state.compact();
    });
    until(&mut opt_outs, |report| {
        report.out == out(&[("a", "10.5.1.6")])
    })
    .await;
    let lines = log.lines();
    let words: Vec<_> = lines
        .iter()
        .filter_map(|line| line.split_once("fast-path: ")?.1.split(',').next())
        .collect();
    assert_eq!(words, ["\"flase\"", "\"off\""], "{lines:#?}");
}

#[tokio::test]
async fn pods_are_not_asked_for_unless_the_option_is_given() {
    let cluster = Cluster::double("unasked").await;
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    let options = KubeOptions {
        pod_opt_out: false,
        ..cluster.options()
    };
    let identity = NodeIdentity::Node(cluster.node_name("own"));
    let mut manager = KubeManager::new(options, identity, BRISK);
    manager.acquire(&request(1)).await.expect("a lease");
    let mut opt_outs = manager.opt_outs();
    opt_outs.want(true);
    opt_outs.first().await;
    assert_eq!(opt_outs.latest(), PodOptOuts::default());
    assert_eq!(cluster.faults().count("/pods"), 0);
}

/// An older ClusterRole has no word of listing pods.
#[tokio::test]
async fn a_server_that_refuses_is_reported_and_asked_again() {
    let cluster = Cluster::double("refused").await;
    let own = cluster.node_name("own");
    cluster.faults().change(|state| {
        state.refuse_pods(true);
        state.put_local_pod("a", &own, &annotation(&cluster, "false"), &["10.5.1.2"]);
    });
    let (_manager, mut opt_outs) = asked(&cluster).await;
    opt_outs.want(true);
    opt_outs.first().await;
    let report = opt_outs.latest();
    assert!(report.is_from_server && report.out.is_empty(), "{report:?}");
    assert!(
        report
            .problem
            .is_some_and(|problem| problem.contains("with --pod-opt-out pods list, watch"))
    );
    cluster.faults().change(|state| state.refuse_pods(false));
    until(&mut opt_outs, |report| {
        report.problem.is_none() && report.out == out(&[("a", "10.5.1.2")])
    })
    .await;
}
