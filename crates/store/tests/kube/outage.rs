//! A server that pages, forgets, breaks off, hangs, goes away, and comes back older.

use std::time::{Duration, Instant};

use flannel_store::{SubnetManager as _, kube::Liveness};

use crate::support::{BRISK, Cluster, LIST, Log, State, follow, next, request};

async fn with_peers(name: &str, peers: std::ops::RangeInclusive<u8>) -> Cluster {
    let cluster = Cluster::double(name).await;
    cluster.add("own", Some("10.5.1.0/24"), &[]).await;
    for n in peers {
        cluster.add_peer(n).await;
    }
    cluster
}

#[tokio::test]
async fn nodes_are_listed_from_the_cache_of_the_server() {
    let cluster = with_peers("cached", 2..=250).await;
    let mut events = follow(cluster.manager("own")).await;
    assert_eq!(next(&mut events).await.split_whitespace().count(), 249);
    assert_eq!(cluster.faults().count("resourceVersion=0"), 1);
    cluster.faults().asked("watch=true", 1).await;
    cluster.add_peer(251).await;
    assert_eq!(next(&mut events).await, "+peer251");
    cluster.faults().fall();
    assert_eq!(next(&mut events).await, "out of sync");
    cluster.add_peer(252).await;
    cluster.faults().change(State::compact);
    cluster.faults().rise();
    while !next(&mut events).await.starts_with('=') {}
    let asked = cluster.faults().change(|state| state.requests.clone());
    let lists: Vec<_> = asked
        .iter()
        .filter(|(_, request)| request.contains(LIST))
        .collect();
    let of_version = |place: usize, version| {
        lists[place]
            .1
            .contains(&format!("resourceVersion={version}&"))
    };
    assert!(
        lists.len() == 2 && of_version(0, 0) && !of_version(1, 0),
        "{lists:?}"
    );
    assert!(
        lists
            .iter()
            .all(|(_, request)| request.contains("resourceVersionMatch=NotOlderThan")),
        "{lists:?}"
    );
    assert_eq!(cluster.faults().change(|state| state.read_from_store), 0);
}

/// It would wait for the version in vain.
#[tokio::test]
async fn nodes_are_listed_page_by_page_from_the_store_where_the_cache_is_behind() {
    let cluster = with_peers("pages", 2..=250).await;
    let mut events = follow(cluster.manager("own")).await;
    assert_eq!(next(&mut events).await.split_whitespace().count(), 249);
    cluster.faults().asked("watch=true", 1).await;
    cluster.faults().change(|state| state.go_back(5));
    cluster.faults().asked("watch=true", 2).await;
    cluster.remove("peer2").await;
    cluster.faults().change(State::bookmark);
    while !next(&mut events).await.starts_with('=') {}
    assert_eq!(cluster.faults().count("continue="), 2);
    assert_eq!(cluster.faults().change(|state| state.read_from_store), 249);
}

#[tokio::test]
async fn a_node_of_any_size_keeps_the_others_in_sync_and_is_named() {
    let log = Log::of_this_thread();
    let cluster = with_peers("large", 2..=3).await;
    // As Go writes 1.4 MB of `<`.
    let message = "\\u003c".repeat(1_400_000);
    let grow = |name: String| {
        let status = serde_json::json!({
            "status": { "conditions": [{ "type": "x", "message": message }] },
        });
        cluster.faults().change(|state| state.edit(&name, &status));
    };
    for n in 4..=12 {
        cluster.add_peer(n).await;
        grow(cluster.node_name(&format!("peer{n}")));
    }
    let mut events = follow(cluster.manager("own")).await;
    assert_eq!(next(&mut events).await.split_whitespace().count(), 11);
    cluster.faults().asked("watch=true", 1).await;
    grow(cluster.node_name("peer2"));
    cluster.add_peer(13).await;
    assert_eq!(next(&mut events).await, "+peer13");
    assert_eq!(cluster.faults().count(LIST), 1);
    let lines = log.lines();
    let named = |line: &&String| line.contains("unusually large") && line.contains("peer");
    assert!(lines.iter().any(|line| named(&line)), "{lines:?}");
}

#[tokio::test]
async fn a_broken_watch_is_taken_up_where_it_was() {
    let cluster = with_peers("broken", 2..=2).await;
    let mut events = follow(cluster.manager("own")).await;
    assert_eq!(next(&mut events).await, "=peer2");
    cluster.faults().asked("watch=true", 1).await;
    for n in 3..6 {
        cluster.faults().change(State::break_streams);
        cluster.add_peer(n).await;
        let expected = format!("+peer{n}");
        loop {
            let event = next(&mut events).await;
            if event == expected {
                break;
            }
            assert!(
                ["out of sync", "resumed"].contains(&event.as_str()),
                "{event}"
            );
        }
    }
    assert_eq!(cluster.faults().count(LIST), 1, "listed once");
}

#[tokio::test]
async fn forgotten_changes_are_made_up_for_by_a_snapshot() {
    for late in [false, true] {
        let cluster = with_peers("forgotten", 2..=3).await;
        let mut events = follow(cluster.manager("own")).await;
        assert_eq!(next(&mut events).await, "=peer2 peer3");
        cluster.faults().asked("watch=true", 1).await;
        if late {
            cluster.faults().change(State::say_gone_late);
        }
        cluster.faults().fall();
        while next(&mut events).await != "out of sync" {}
        cluster.remove("peer2").await;
        cluster.add_peer(4).await;
        cluster.faults().change(State::compact);
        cluster.faults().rise();
        loop {
            match next(&mut events).await.as_str() {
                "=peer3 peer4" => break,
                "resumed" | "out of sync" if late => {}
                other => panic!("{other}"),
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_restarts_loses_nothing() {
    let cluster = with_peers("restart", 2..=2).await;
    let mut events = follow(cluster.manager("own")).await;
    assert_eq!(next(&mut events).await, "=peer2");
    cluster.faults().asked("watch=true", 1).await;
    cluster.faults().fall();
    assert_eq!(next(&mut events).await, "out of sync");
    cluster.add_peer(3).await;
    cluster.remove("peer2").await;
    cluster.faults().rise();
    assert_eq!(next(&mut events).await, "resumed");
    assert_eq!(next(&mut events).await, "+peer3");
    assert_eq!(next(&mut events).await, "-peer2");
}

#[tokio::test]
async fn a_silent_watch_is_opened_again_unnoticed() {
    let cluster = with_peers("silent", 2..=2).await;
    let brisk = Liveness {
        silence: Duration::from_millis(300),
        ..BRISK
    };
    let mut events = follow(cluster.manager_with("own", brisk)).await;
    assert_eq!(next(&mut events).await, "=peer2");
    cluster.faults().asked("watch=true", 3).await;
    cluster.add_peer(3).await;
    assert_eq!(next(&mut events).await, "+peer3");
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up_and_found_again() {
    let cluster = with_peers("hangs", 2..=2).await;
    let brisk = Liveness {
        deadline: Duration::from_secs(2),
        silence: Duration::from_secs(2),
        ..BRISK
    };
    let mut events = follow(cluster.manager_with("own", brisk)).await;
    assert_eq!(next(&mut events).await, "=peer2");
    cluster.faults().change(|state| state.hang(true));
    cluster.add_peer(3).await;
    assert_eq!(next(&mut events).await, "out of sync");
    cluster.faults().change(|state| state.hang(false));
    assert_eq!(next(&mut events).await, "resumed");
    assert_eq!(next(&mut events).await, "+peer3");
}

#[tokio::test]
async fn a_server_restored_from_a_backup_is_listed_again() {
    let cluster = with_peers("restored", 2..=20).await;
    let mut events = follow(cluster.manager("own")).await;
    assert_eq!(next(&mut events).await.split_whitespace().count(), 19);
    cluster.faults().asked("watch=true", 1).await;
    cluster.faults().change(|state| state.go_back(5));
    cluster.faults().asked("watch=true", 2).await;
    cluster.remove("peer2").await;
    cluster.faults().change(State::bookmark);
    loop {
        let event = next(&mut events).await;
        if event.starts_with('=') {
            assert_eq!(event.split_whitespace().count(), 18, "{event}");
            break;
        }
    }
}

#[tokio::test]
async fn bookmarks_move_the_watch_on() {
    let cluster = with_peers("bookmarks", 2..=2).await;
    let mut events = follow(cluster.manager("own")).await;
    assert_eq!(next(&mut events).await, "=peer2");
    cluster.faults().asked("watch=true", 1).await;
    // Changes elsewhere move the version on. A bookmark reports it, and the next watch starts from
    // there.
    let version = cluster.faults().change(|state| {
        state.version += 1000;
        state.bookmark();
        state.version
    });
    cluster.faults().change(State::compact_and_end);
    cluster
        .faults()
        .asked(&format!("resourceVersion={version}"), 1)
        .await;
    cluster.add_peer(3).await;
    while next(&mut events).await != "+peer3" {}
    assert_eq!(cluster.faults().count(LIST), 1, "not listed again");
}

#[tokio::test]
async fn an_expired_token_is_replaced_while_we_watch() {
    let cluster = with_peers("rotated", 2..=2).await;
    let mut events = follow(cluster.manager("own")).await;
    assert_eq!(next(&mut events).await, "=peer2");
    cluster.faults().asked("watch=true", 1).await;
    cluster.faults().change(|state| {
        state.require("rotated");
        state.break_streams();
    });
    assert_eq!(next(&mut events).await, "out of sync");
    cluster.add_peer(3).await;
    cluster.write_kubeconfig("rotated");
    while next(&mut events).await != "+peer3" {}
}

/// A plugin that prints the content of a file as a token, which lasts this long.
fn prints(cluster: &Cluster, seconds: u32) -> String {
    let file = cluster.scratch("printed").display().to_string();
    let end = format!("$(date -u -d @$(($(date +%s) + {seconds})) +%Y-%m-%dT%H:%M:%SZ)");
    format!(
        r#"echo '{{"status":{{"token":"'"$(cat {file})"'","expirationTimestamp":"'"{end}"'"}}}}'"#
    )
}

#[tokio::test]
async fn a_credential_plugin_is_asked_again_before_its_token_ends() {
    let cluster = with_peers("plugin", 2..=2).await;
    let write = |token: &str| std::fs::write(cluster.scratch("printed"), token).expect("a file");
    write("first");
    cluster.write_plugin(&prints(&cluster, 5));
    cluster.faults().change(|state| state.require("first"));
    let mut events = follow(cluster.manager("own")).await;
    assert_eq!(next(&mut events).await, "=peer2");
    cluster.faults().asked("watch=true", 1).await;
    write("second");
    cluster.faults().change(|state| {
        state.require("second");
        state.end_watches();
    });
    // Without a refusal: the token was about to end.
    cluster.faults().asked("watch=true", 2).await;
    cluster.add_peer(3).await;
    assert_eq!(next(&mut events).await, "+peer3");
}

#[tokio::test]
async fn a_credential_plugin_that_hangs_is_named_and_waited_for() {
    let cluster = with_peers("hung-plugin", 2..=2).await;
    cluster.write_plugin("exec sleep 600");
    let brisk = Liveness {
        deadline: Duration::from_secs(2),
        ..BRISK
    };
    let mut manager = cluster.manager_with("own", brisk);
    let error = manager
        .acquire(&request(1))
        .await
        .expect_err("no credentials")
        .to_string();
    assert!(
        error.contains("the credential plugin /bin/sh did not end within"),
        "{error}"
    );
    cluster.write_kubeconfig("secret");
    let mut events = follow(manager).await;
    assert_eq!(next(&mut events).await, "=peer2");
}

/// The least delay once the back-off has grown to its 5 s, less 20 % of jitter.
const GROWN: Duration = Duration::from_secs(4);

/// The history of a restarted server begins later than where the watch ended. That is nothing to
/// wait for, however long the outage was, and nothing to warn of.
async fn history_lost_in_an_outage(name: &str, late: bool) {
    let cluster = with_peers(name, 2..=3).await;
    let mut events = follow(cluster.manager("own")).await;
    assert_eq!(next(&mut events).await, "=peer2 peer3");
    cluster.faults().asked("watch=true", 1).await;
    cluster.faults().change(|state| {
        state.lose_nodes();
        if late {
            state.say_gone_late();
        }
    });
    assert_eq!(next(&mut events).await, "out of sync");
    // After five failures the sixth attempt, and from then on the delay is the longest.
    cluster.faults().asked("watch=true", 7).await;
    cluster.remove("peer2").await;
    cluster.add_peer(4).await;
    cluster.faults().change(|state| {
        state.compact();
        state.serve_nodes();
    });
    // A server that says so inside the stream has accepted the watch first.
    if late {
        assert_eq!(next(&mut events).await, "resumed");
    }
    assert_eq!(next(&mut events).await, "=peer3 peer4");
    cluster.add_peer(5).await;
    assert_eq!(next(&mut events).await, "+peer5");

    let record = cluster.faults().change(|state| state.requests.clone());
    let listed = record
        .iter()
        .rposition(|(_, request)| request.contains(LIST))
        .expect("listed");
    let (before, at): (&(Instant, String), _) = (&record[listed - 1], record[listed].0);
    assert!(before.1.contains("watch=true"), "{record:?}");
    let delay = at - before.0;
    // The nodes of a cluster spread their listings over two seconds.
    assert!(delay < GROWN * 3 / 4, "listed {delay:?} after the refusal");
}

#[tokio::test]
async fn history_lost_in_an_outage_is_listed_soon() {
    let log = Log::of_this_thread();
    tokio::join!(
        history_lost_in_an_outage("lost", false),
        history_lost_in_an_outage("lost-late", true)
    );
    let lines = log.lines();
    let of_it: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("too old resource version"))
        .collect();
    assert_eq!(of_it.len(), 2, "{lines:?}");
    assert!(
        of_it.iter().all(|line| line.starts_with("DEBUG ")),
        "{of_it:?}"
    );
    assert_eq!(
        lines.iter().filter(|line| line.contains("is back")).count(),
        2,
        "once in each cluster: {lines:?}"
    );
}

/// The most bytes that the network buffers, in addition to those that the client takes.
const BUFFERED: usize = 24 << 20;

#[tokio::test]
async fn an_answer_without_an_end_is_given_up_and_the_node_goes_on() {
    let log = Log::of_this_thread();
    let cluster = with_peers("endless", 2..=2).await;
    cluster
        .faults()
        .change(|state| state.flood(Some("/nodes/")));
    let error = cluster
        .manager("own")
        .acquire(&request(1))
        .await
        .expect_err("no answer");
    assert!(
        error
            .to_string()
            .contains("its answer is not read: it is larger than 64 MiB"),
        "{error}"
    );
    let taken = cluster
        .faults()
        .change(|state| std::mem::take(&mut state.taken));
    println!("an answer of 400 MB: {taken} bytes were taken");
    assert!(taken < (64 << 20) + BUFFERED, "{taken} bytes");

    cluster
        .faults()
        .change(|state| state.flood(Some("watch=true")));
    let mut events = follow(cluster.manager("own")).await;
    assert_eq!(next(&mut events).await, "=peer2");
    cluster.faults().asked("watch=true", 3).await;
    let taken = cluster
        .faults()
        .change(|state| std::mem::take(&mut state.taken));
    println!("a line of 400 MB on a watch: {taken} bytes were taken");
    assert!(taken < (16 << 20) + BUFFERED, "{taken} bytes");
    let lines = log.lines().join("\n");
    assert!(
        lines.contains("its answer is not read: it is larger than 16 MiB"),
        "{lines}"
    );

    cluster.faults().change(|state| state.flood(None));
    cluster.add_peer(3).await;
    while next(&mut events).await != "=peer2 peer3" {}
}
