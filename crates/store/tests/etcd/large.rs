//! Tests of values as large as etcd accepts: each is read, or refused without effect on others, and
//! no listing is repeated.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use flannel_store::{BadLease, StoreEvent};

use crate::support::{Cluster, attrs, follow, request, until, until_in_sync};

/// Bytes that a server has sent to its clients.
fn sent(cluster: &Cluster) -> u64 {
    let address = cluster.etcd.endpoint().replace("http://", "");
    let mut stream = TcpStream::connect(&address).expect("a server");
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("etcd_network_client_grpc_sent_bytes_total "));
    let bytes: f64 = line.expect("the metric").parse().expect("a number");
    format!("{bytes:.0}").parse().expect("a whole number")
}

/// Each client that may write below the prefix can make such values.
#[tokio::test]
async fn large_values_are_refused_for_their_entries_alone() {
    let Some(cluster) = Cluster::alone("large").await else {
        return;
    };
    let value = "x".repeat(1_400_000);
    for n in 201..=206 {
        cluster.put(&format!("10.5.{n}.0-24"), &value).await;
    }
    cluster.put("10.5.210.0-24", &attrs(2).to_json()).await;
    let before = sent(&cluster);
    let (_, mut events) = follow(cluster.manager(), request(1)).await;
    assert_eq!(
        until_in_sync(&mut events).await.len(),
        8,
        "all, and our own"
    );
    cluster.put("10.5.211.0-24", &attrs(3).to_json()).await;
    let is_later = |event| {
        matches!(event, StoreEvent::Put(entry) if &*entry.name == "10.5.211.0-24").then_some(())
    };
    until(&mut events, is_later).await;
    let sent = sent(&cluster) - before;
    // To choose a subnet, to acquire it, and to follow; an answer that is too large is sent again.
    println!("8.4 MB of values: {sent} bytes sent");
    assert!(sent < 60_000_000, "{sent}");
}

/// Nodes with the backend extension may publish 16 KiB each.
#[tokio::test]
async fn leases_of_any_lawful_size_are_listed() {
    let Some(cluster) = Cluster::alone("extension").await else {
        return;
    };
    let value = format!(
        r#"{{"PublicIP":"192.0.2.9","BackendType":"extension","BackendData":"{}"}}"#,
        "x".repeat(15_000)
    );
    for n in 0..700 {
        cluster
            .put(&format!("10.5.{}.{}-28", n / 16, n % 16 * 16), &value)
            .await;
    }
    let before = sent(&cluster);
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    let mut names = until_in_sync(&mut events).await;
    names.retain(|name| *name != own.to_string());
    assert_eq!(names.len(), 700);
    let sent = sent(&cluster) - before;
    println!("10.5 MB of leases: {sent} bytes sent");
    assert!(sent < 60_000_000, "{sent}");
}

#[tokio::test]
async fn a_value_above_the_limit_is_named_and_the_others_are_read() {
    let Some(cluster) = Cluster::with_requests_of("enormous", 20 << 20).await else {
        return;
    };
    cluster.put("10.5.201.0-24", &"x".repeat(9 << 20)).await;
    cluster.put("10.5.202.0-24", &attrs(2).to_json()).await;
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    let snapshot = until(&mut events, |event| match event {
        StoreEvent::InSync { snapshot } => Some(snapshot),
        _ => None,
    })
    .await;
    for entry in snapshot {
        let is_too_large = matches!(entry.lease, Err(BadLease::TooLarge { .. }));
        assert_eq!(is_too_large, &*entry.name == "10.5.201.0-24", "{entry:?}");
        assert!(is_too_large || entry.lease.is_ok() || *entry.name == *own.to_string());
    }
}
