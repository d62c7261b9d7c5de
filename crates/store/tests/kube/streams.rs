//! Input on a watch: slow, broken, or not what it should be.

use flannel_store::StoreEvent;
use serde_json::json;
use tokio::{sync::mpsc, time::timeout};

use crate::support::{Cluster, PATIENCE, State, follow, next};

async fn with_one_peer(name: &str) -> (Cluster, mpsc::Receiver<StoreEvent>) {
    let cluster = Cluster::double(name).await;
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    cluster.add_peer(2).await;
    cluster.faults().change(State::trickle);
    let mut events = follow(cluster.manager("own")).await;
    assert_eq!(next(&mut events).await, "=peer2");
    cluster.faults().asked("watch=true", 1).await;
    (cluster, events)
}

/// Waits for an event, however many others come.
async fn until(events: &mut mpsc::Receiver<StoreEvent>, wanted: &str) {
    let waiting = async { while next(events).await != wanted {} };
    timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("{wanted} in time"));
}

#[tokio::test]
async fn what_arrives_a_few_bytes_at_a_time_is_put_together() {
    let (cluster, mut events) = with_one_peer("trickle").await;
    for n in 3..20 {
        cluster.add_peer(n).await;
        assert_eq!(next(&mut events).await, format!("+peer{n}"));
    }
}

/// Invalid input may be skipped or may end the watch. Either way the next change arrives.
#[tokio::test]
async fn nothing_that_is_said_on_a_watch_is_the_end_of_it() {
    let (cluster, mut events) = with_one_peer("noise").await;
    let long = [
        b"{\"type\":\"ADDED\",\"object\":\"".as_slice(),
        &vec![b'x'; 1 << 20],
        b"\"}\n",
    ]
    .concat();
    let noise: [&[u8]; 15] = [
        b"\n\n\r\n",
        b"nonsense\n",
        b"\xff\xfe\x00\n",
        b"null\n",
        b"[]\n",
        b"{}\n",
        b"{\"type\":\"MODIFIED\"}\n",
        b"{\"type\":\"REPLACED\",\"object\":{\"metadata\":{\"name\":\"noise-peer2\"}}}\n",
        b"{\"type\":\"ADDED\",\"object\":null}\n",
        b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":5}}}\n",
        b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"x\",\"annotations\":[1]}}}\n",
        b"{\"type\":\"DELETED\",\"object\":{\"spec\":{\"podCIDRs\":\"10.5.2.0/24\"}}}\n",
        b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":500,\
          \"message\":\"internal\",\"reason\":\"InternalError\"}}\n",
        b"{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"\"}}}\n",
        &long,
    ];
    for (noise, n) in noise.into_iter().zip(3..) {
        cluster.faults().change(|state| state.say(noise));
        cluster.add_peer(n).await;
        let expected = format!("peer{n}");
        loop {
            let event = next(&mut events).await;
            // As a change, or in a snapshot if the watch could not be taken up.
            if event == format!("+{expected}")
                || event.split(['=', ' ']).any(|name| name == expected)
            {
                break;
            }
            let passing =
                event.starts_with('=') || ["out of sync", "resumed"].contains(&event.as_str());
            assert!(
                passing,
                "{event} after {:?}",
                String::from_utf8_lossy(&noise[..noise.len().min(99)])
            );
        }
    }
    cluster.remove("peer2").await;
    until(&mut events, "-peer2").await;
}

/// A change that cannot be read stays in the history. A client that resumes before it receives it
/// again, for ever.
#[tokio::test]
async fn a_change_that_cannot_be_read_is_passed_by_listing() {
    let (cluster, mut events) = with_one_peer("unreadable").await;
    cluster
        .edit("peer2", json!({ "spec": { "podCIDRs": 5 } }))
        .await;
    cluster
        .edit("peer2", json!({ "spec": { "podCIDRs": ["10.5.2.0/24"] } }))
        .await;
    cluster.add_peer(3).await;
    until(&mut events, "=peer2 peer3").await;
    cluster.add_peer(4).await;
    until(&mut events, "+peer4").await;
}
