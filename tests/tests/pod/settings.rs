//! Settings of the node by annotation: which the agent goes by, and what it says of the others.

use serde_json::{Value, json};

use super::{
    node,
    support::{Pod, in_pod, run},
};

const PREFIX: &str = "flannel.alpha.coreos.com/";

fn annotate(pod: &Pod, annotations: &[(&str, Option<&str>)]) {
    let all: serde_json::Map<_, _> = annotations
        .iter()
        .map(|(name, value)| (format!("{PREFIX}{name}"), json!(value)))
        .collect();
    pod.double
        .change(|state| state.edit("own", &json!({ "metadata": { "annotations": all } })));
}

/// A Node with these annotations, and a second interface, `eth1`: 192.0.3.1/24.
fn with_annotations(pod: &Pod, annotations: &[(&str, Option<&str>)]) {
    for line in [
        "ip link add eth1 type veth peer name peer1",
        "ip link set peer1 up",
        "ip link set eth1 up",
        "ip addr add 192.0.3.1/24 dev eth1",
    ] {
        run(line);
    }
    pod.double.change(|state| state.put(node("own", 1)));
    annotate(pod, annotations);
}

fn setting<'a>(status: &'a Value, name: &str) -> &'a Value {
    let all = status["node_settings"].as_array().into_iter().flatten();
    all.into_iter()
        .find(|setting| setting["annotation"] == format!("{PREFIX}{name}"))
        .unwrap_or(&Value::Null)
}

fn reason<'a>(status: &'a Value, name: &str) -> &'a str {
    setting(status, name)["reason"].as_str().unwrap_or_default()
}

fn expect_interface(status: &Value, name: &str, mtu: u32) {
    assert_eq!(
        (&status["interface"]["name"], &status["device"]["mtu"]),
        (&json!(name), &json!(mtu)),
        "{status}"
    );
}

/// Of annotations that change while the agent runs, some wait for its next start.
fn expect_reasons(status: &Value) {
    assert_eq!(setting(status, "node-mtu")["in_force"], false);
    assert_eq!(
        reason(status, "node-mtu"),
        "takes effect at the next start of the agent"
    );
    assert_eq!(
        reason(status, "node-iface"),
        "removed, and in force until the next start of the agent"
    );
    assert!(reason(status, "node-guard-outer").contains("refused: expected enforce, audit or off"));
}

#[test]
fn annotations_of_the_node_come_before_the_flags() {
    in_pod(async |mut pod| {
        let all = [
            ("node-iface", Some("eth1")),
            ("node-mtu", Some("1300")),
            ("node-datapath", Some("kernel")),
            ("node-guard-outer", Some("audit")),
        ];
        with_annotations(&pod, &all);
        pod.start_with(&["--datapath=encap"]);
        let status = pod.until_ready().await;
        expect_interface(&status, "eth1", 1250);
        assert_eq!(
            (&status["mode"]["wanted"], &status["mode"]["source"]),
            (&json!("kernel"), &json!("node-annotation"))
        );
        assert_eq!(status["guard"]["outer"]["wanted"], "audit", "{status}");
        assert_eq!(status["node_settings"].as_array().map(Vec::len), Some(4));
        assert!(
            all.iter()
                .all(|(name, _)| setting(&status, name)["in_force"] == true),
            "{status}"
        );

        // Mode and guard are followed; the others wait.
        let changes = [
            ("node-iface", None),
            ("node-mtu", Some("1200")),
            ("node-datapath", None),
            ("node-guard-outer", Some("auto")),
        ];
        annotate(&pod, &changes);
        let status = pod
            .until("the flag's mode", |status| {
                status["mode"]["source"] == "flag"
            })
            .await;
        assert_eq!(
            (
                &status["mode"]["wanted"],
                &status["guard"]["outer"]["wanted"]
            ),
            (&json!("encap"), &json!("enforce"))
        );
        expect_interface(&status, "eth1", 1250);
        expect_reasons(&status);
        let log = Pod::log();
        assert!(
            log.contains("takes effect at the next start of the agent"),
            "{log}"
        );

        pod.stop();
        pod.start();
        let status = pod.until_ready().await;
        expect_interface(&status, "eth0", 1150);
    });
}

/// Status and log name an annotation that is not in force, its value, and the reason.
fn expect_refused(status: &Value, log: &str, [name, value, expected]: [&str; 3]) {
    let text = reason(status, name);
    assert_eq!(
        (
            &setting(status, name)["in_force"],
            &setting(status, name)["value"]
        ),
        (&json!(false), &json!(value))
    );
    assert!(text.contains(expected), "{text}");
    let line = format!("annotation {PREFIX}{name}={value}: {text}");
    assert!(log.contains(&line), "{line} in {log}");
}

#[test]
fn annotations_that_cannot_be_followed_are_named_and_the_node_serves() {
    in_pod(async |mut pod| {
        let all = [
            (
                "node-iface",
                Some("eth9"),
                "--iface and the flags next to it apply",
            ),
            (
                "node-mtu",
                Some("9000"),
                "refused: the external interface has 1500 bytes; Backend.MTU applies",
            ),
            (
                "node-datapath",
                Some("turbo"),
                "refused: expected kernel, encap, fast or auto; --datapath applies",
            ),
            (
                "node-guard-inner",
                Some("maybe"),
                "refused: expected enforce, audit or off; --guard-inner applies",
            ),
        ];
        with_annotations(&pod, &all.map(|(name, value, _)| (name, value)));
        pod.start_with(&["--datapath=kernel"]);
        let status = pod.until_ready().await;
        expect_interface(&status, "eth0", 1450);
        assert_eq!(
            (
                &status["mode"]["source"],
                &status["guard"]["inner"]["wanted"]
            ),
            (&json!("flag"), &json!("audit"))
        );
        let log = Pod::log();
        for (name, value, expected) in all {
            let value = format!("{:?}", value.unwrap_or_default());
            expect_refused(&status, &log, [name, &value, expected]);
        }
        let written = pod.double.wrote_events(1).await;
        assert_eq!(written[0]["reason"], "NodeAnnotationRefused", "{written:?}");
        assert!(
            written[0]["message"]
                .as_str()
                .is_some_and(|text| text.contains("/node-")),
            "{written:?}"
        );
        let shown = Pod::print(&["status"]);
        assert!(
            shown
                .contains("annotation flannel.alpha.coreos.com/node-datapath=\"turbo\": refused: "),
            "{shown}"
        );
    });
}
