//! Pods that opt out of mode `fast` by annotation: the agent's reaction.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use serde_json::{Value, json};

use super::{
    nodes::new_node,
    support::{Pod, in_pod, run},
};

fn way(status: &Value) -> (&Value, &Value, &Value) {
    let pod = &status["fast"]["pods"][0];
    (&pod["sends"], &pod["receives"], &pod["reasons"])
}

/// The next packet of the pod, as `monitor` shows it to programs.
fn monitor_names_the_pod() {
    let mut monitor = Pod::command(&[
        "monitor",
        "--src=10.5.1.2",
        "--count=1",
        "--duration=20",
        "-o",
        "json",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("the monitor starts");
    let mut said = String::new();
    BufReader::new(monitor.stderr.take().expect("a pipe"))
        .read_line(&mut said)
        .expect("text");
    assert_eq!(said, "monitoring; Ctrl-C ends it\n");
    run("ip netns exec db ping -n -c 3 -i 0.1 -W 1 10.5.1.1");
    let output = monitor.wait_with_output().expect("its end");
    let packet: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(
        (&packet["source_pod"], &packet["destination_pod"]),
        (&json!("default/db"), &Value::Null),
        "{packet}"
    );
}

/// The pod db, known to the double, and on a bridge.
fn make_pod_db(pod: &Pod) {
    pod.double.change(|state| {
        state.put(new_node("own", "10.5.1.0/24"));
        state.put_local_pod("db", "own", &json!({}), &["10.5.1.2"]);
    });
    for line in [
        "ip link add cni0 type bridge",
        "ip addr add 10.5.1.1/24 dev cni0",
        "ip link set cni0 up",
        "ip netns add db",
        "ip link add veth1 type veth peer name eth0 netns db",
        "ip link set veth1 master cni0 up",
        "ip -n db link set eth0 up",
        "ip -n db addr add 10.5.1.2/24 dev eth0",
    ] {
        run(line);
    }
}

/// The whole agent, with a pod on a bridge, as the CNI plugin makes it.
#[test]
fn the_agent_takes_an_annotated_pod_out_of_mode_fast_and_lets_it_in_again() {
    in_pod(async |mut pod| {
        let no = json!({ "flannel.alpha.coreos.com/fast-path": "false" });
        make_pod_db(&pod);
        pod.start_with(&["--datapath=fast", "--pod-opt-out"]);
        let yes = (&json!(true), &json!(true), &json!([]));
        pod.until("the pod to take part", |status| way(status) == yes)
            .await;

        let generation = Pod::generation();
        pod.double
            .change(|state| state.put_local_pod("db", "own", &no, &["10.5.1.2"]));
        let why = json!(["the annotation of pod default/db says so"]);
        pod.until("the pod to stay out", |status| {
            way(status) == (&json!(false), &json!(false), &why)
        })
        .await;
        assert!(
            Pod::generation() > generation,
            "what was known of its flows is void"
        );
        assert_eq!(
            Pod::ask(&["maps", "dump", "pods", "-o", "json"])["pods"],
            json!([])
        );
        let explained = Pod::ask(&["explain", "10.5.1.2", "10.5.9.9", "-o", "json"]).to_string();
        assert!(
            explained.contains("leaves it alone: the annotation of pod default/db says so"),
            "{explained}"
        );

        // The first word of the server comes before the first look of a new agent.
        pod.stop();
        pod.start_with(&["--datapath=fast", "--pod-opt-out"]);
        pod.until_ready().await;
        assert_eq!(
            way(&pod
                .until("the pod", |status| way(status).0.is_boolean())
                .await),
            (&json!(false), &json!(false), &why)
        );
        assert!(!Pod::log().contains("not known yet"), "{}", Pod::log());

        pod.double
            .change(|state| state.put_local_pod("db", "own", &json!({}), &["10.5.1.2"]));
        pod.until("the pod to take part again", |status| way(status) == yes)
            .await;
        pod.until("its name", |status| {
            status["pod_names"] == json!({ "10.5.1.2": "default/db" })
        })
        .await;
        monitor_names_the_pod();
    });
}
