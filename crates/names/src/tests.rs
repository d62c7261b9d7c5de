//! NameTable from the sources that need no server.

use std::{
    fs,
    time::{Duration, Instant},
};

use flannel_reconcile::SharedPeers;
use flannel_status::{LeaseStatus, ModeStatus, NetworkStatus, Status};
use tokio::sync::watch;

use super::{
    cache::{Cache, FAILED, FRESH, FRESH_WITHOUT, LookupOutcome, NODES, NameTable, REFUSED},
    *,
};

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn names(pairs: &[(&str, &str)]) -> NameTable {
    pairs
        .iter()
        .map(|(at, name)| (address(at), (*name).to_owned()))
        .collect()
}

fn status() -> Status {
    let mode = ModeStatus {
        effective: "kernel".into(),
        wanted: "kernel".into(),
        ..ModeStatus::default()
    };
    let lease = LeaseStatus {
        subnet: "10.244.1.0/24".to_owned(),
        public_ip: "192.168.1.11".to_owned(),
        ..LeaseStatus::default()
    };
    let network = NetworkStatus {
        networks: vec!["10.244.0.0/16".to_owned()],
        backend: "vxlan".to_owned(),
        vni: None,
        port: None,
        mtu: Some(1450),
    };
    let pod_names = names(&[("10.244.1.5", "shop/web")]);
    Status {
        lease: Some(lease),
        network: Some(network),
        pod_names,
        ..Status::without_agent("test", mode)
    }
}

#[tokio::test]
async fn each_kind_of_address_is_known_without_a_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let hosts = directory.path().join("hosts");
    fs::write(&hosts, "192.0.2.7 build.example.org\n").expect("a file");
    let (_publish, status) = watch::channel(status());
    let peers = SharedPeers::default();
    let sources = NameSources {
        status,
        peers,
        node: "node-a".to_owned(),
        kube: None,
        hosts: Some(hosts),
    };
    let addresses = [
        "10.244.1.5",
        "10.244.9.9",
        "192.168.1.11",
        "192.0.2.7",
        "192.0.2.8",
        "10.244.1.0",
        "10.244.1.1",
        "10.244.1.2",
    ]
    .map(address);
    let resolver = NameResolver::new(sources);
    assert_eq!(
        resolver.node_addresses(),
        [("node-a".to_owned(), vec![address("192.168.1.11")])].into()
    );
    let found = resolver.resolve(&addresses, Duration::from_secs(30)).await;
    let shown: Vec<_> = addresses
        .iter()
        .map(|at| (found[at].kind.name(), found[at].shown()))
        .collect();
    let expected = [
        ("pod", Some("shop/web")),
        ("pod", None),
        ("host", Some("node-a")),
        ("outside", Some("build.example.org")),
        ("outside", None),
        ("host", Some("node-a")),
        ("host", Some("node-a")),
        ("pod", None),
    ];
    assert_eq!(shown, expected);
    assert_eq!(found[&addresses[0]].node.as_deref(), Some("node-a"));
}

#[test]
fn a_name_is_kept_for_a_time_that_depends_on_the_answer() {
    let (mut cache, start, pod) = (Cache::default(), Instant::now(), address("10.244.2.5"));
    let other = address("10.244.2.6");
    let of = |cache: &Cache, at, later: Duration| cache.pod("b", at, start + later);
    let second = Duration::from_secs(1);
    assert_eq!(of(&cache, pod, Duration::ZERO), (None, false));
    cache.set_pods(
        "b".into(),
        LookupOutcome::Listed,
        names(&[("10.244.2.5", "shop/db")]),
        start,
    );
    let db = Some("shop/db".to_owned());
    assert_eq!(
        of(&cache, pod, FRESH.saturating_sub(second)),
        (db.clone(), true)
    );
    assert_eq!(
        of(&cache, pod, FRESH),
        (db.clone(), false),
        "a stale name is still shown"
    );
    assert_eq!(
        of(&cache, other, FRESH_WITHOUT.saturating_sub(second)),
        (None, true),
        "an answer without the address is kept"
    );
    assert_eq!(
        of(&cache, other, FRESH_WITHOUT),
        (None, false),
        "not for long: pods come"
    );
    cache.set_pods("b".into(), LookupOutcome::Failed, NameTable::new(), start);
    assert_eq!(
        of(&cache, pod, FAILED.saturating_sub(second)),
        (db.clone(), true),
        "a failure keeps the names"
    );
    assert_eq!(of(&cache, pod, FAILED), (db.clone(), false));
    cache.set_pods("b".into(), LookupOutcome::Refused, NameTable::new(), start);
    assert_eq!(
        (
            of(&cache, other, REFUSED.saturating_sub(second)),
            of(&cache, other, REFUSED)
        ),
        ((None, true), (None, false))
    );
    cache.set_pods("b".into(), LookupOutcome::Listed, NameTable::new(), start);
    assert_eq!(
        of(&cache, pod, Duration::ZERO),
        (None, true),
        "a pod that is gone has no name"
    );
}

#[test]
fn the_pods_of_so_many_nodes_are_kept_and_no_more() {
    let (mut cache, start, pod) = (Cache::default(), Instant::now(), address("10.244.2.5"));
    for node in 0..=NODES {
        let at = start + Duration::from_millis(u64::try_from(node).expect("few"));
        cache.set_pods(
            node.to_string().into(),
            LookupOutcome::Listed,
            names(&[("10.244.2.5", "shop/db")]),
            at,
        );
    }
    let is_known = |node: usize| cache.pod(&node.to_string(), pod, start).0.is_some();
    assert!(
        !is_known(0) && is_known(1) && is_known(NODES),
        "the one that was listed first made room"
    );
}
