//! Names of addresses through the API server: asked for when a client asks, and not before.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    time::Duration,
};

use serde_json::{Value, json};

use super::{node, support::in_pod};

/// Asks the agent's socket; on another thread, because the API server shares this one.
async fn names(addresses: &[&str]) -> Value {
    let request = json!({ "request": "names", "addresses": addresses }).to_string() + "\n";
    let ask = move || {
        let mut socket = UnixStream::connect("/run/flannel/agent.sock").expect("the socket");
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a limit");
        socket.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        BufReader::new(socket)
            .read_line(&mut answer)
            .expect("an answer");
        serde_json::from_str::<Value>(&answer).expect("a document")["names"].clone()
    };
    tokio::task::spawn_blocking(ask).await.expect("an answer")
}

#[test]
fn pods_of_this_and_of_other_nodes_have_their_names() {
    in_pod(async |mut pod| {
        pod.double.change(|state| {
            state.put(node("own", 1));
            state.put(node("other", 2));
            state.put_local_pod("web", "own", &json!({}), &["10.5.1.2"]);
            state.put_local_pod("db", "other", &json!({}), &["10.5.2.2"]);
        });
        pod.start();
        pod.until("the other node", |status| {
            status["peers"][0]["node"] == "other"
        })
        .await;
        assert_eq!(pod.double.count("/pods"), 0, "before the first question");
        let found = names(&[
            "10.5.1.2",
            "10.5.2.2",
            "10.5.2.9",
            "192.0.2.2",
            "198.51.100.7",
        ])
        .await;
        let shown = |address: &str| {
            let names = &found[address];
            (
                names["kind"].clone(),
                names["pod"].clone(),
                names["node"].clone(),
            )
        };
        assert_eq!(
            shown("10.5.1.2"),
            (json!("pod"), json!("default/web"), json!("own"))
        );
        assert_eq!(
            shown("10.5.2.2"),
            (json!("pod"), json!("default/db"), json!("other"))
        );
        assert_eq!(
            shown("10.5.2.9"),
            (json!("pod"), Value::Null, json!("other")),
            "no pod has it"
        );
        assert_eq!(
            shown("192.0.2.2"),
            (json!("node"), Value::Null, json!("other"))
        );
        assert_eq!(
            shown("198.51.100.7"),
            (json!("outside"), Value::Null, Value::Null)
        );
        assert_eq!(pod.double.count("/pods"), 2, "one request for each node");
        names(&["10.5.2.2", "10.5.1.2"]).await;
        assert_eq!(
            pod.double.count("/pods"),
            2,
            "what is known is not asked for again"
        );
    });
}

#[test]
fn without_the_right_pods_are_addresses() {
    in_pod(async |mut pod| {
        pod.double.change(|state| {
            state.put(node("own", 1));
            state.put_local_pod("web", "own", &json!({}), &["10.5.1.2"]);
            state.refuse_pods(true);
        });
        pod.start();
        pod.until_ready().await;
        for _ in 0..3 {
            let found = names(&["10.5.1.2"]).await;
            assert_eq!(
                (&found["10.5.1.2"]["kind"], &found["10.5.1.2"]["pod"]),
                (&json!("pod"), &Value::Null)
            );
        }
        assert_eq!(pod.double.count("/pods"), 1, "a refusal is not repeated");
    });
}
