//! The agent's process in a pod: what it is given there, and how it takes what happens to that.

#[expect(
    dead_code,
    reason = "shared with the tests of flannel-store, which need more of it"
)]
#[path = "../../support/api_server/mod.rs"]
pub(crate) mod api_server;
#[path = "../../support/certs.rs"]
mod certs;
mod hang;
mod many;
mod names;
#[path = "../../support/nodes.rs"]
mod nodes;
mod opt_out;
mod settings;
mod support;

use std::time::Instant;

use serde_json::json;

use self::{
    api_server::{LIST, State},
    certs::Authority,
    support::{Pod, in_pod, run},
};

/// A Node of the double, as a peer of that subnet if it is not ours.
fn node(name: &str, n: u8) -> serde_json::Value {
    let prefix = "flannel.alpha.coreos.com/";
    let annotations = if name == "own" {
        json!({})
    } else {
        json!({
            format!("{prefix}kube-subnet-manager"): "true",
            format!("{prefix}backend-type"): "vxlan",
            format!("{prefix}backend-data"):
                format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:00:{n:02x}"}}"#),
            format!("{prefix}public-ip"): format!("192.0.2.{n}"),
        })
    };
    let meta = json!({
        "name": name,
        "uid": name,
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "annotations": annotations,
    });
    let cidr = format!("10.5.{n}.0/24");
    let spec = json!({ "podCIDR": cidr, "podCIDRs": [cidr] });
    json!({ "kind": "Node", "apiVersion": "v1", "metadata": meta, "spec": spec })
}

fn with_own(pod: &Pod) {
    pod.double.change(|state| {
        state.require("first");
        state.put(node("own", 1));
        state.put(node("peer2", 2));
    });
}

#[test]
fn a_pod_uses_its_service_account_and_the_authority_of_its_cluster() {
    in_pod(async |mut pod| {
        with_own(&pod);
        pod.start();
        let status = pod.until_ready().await;
        assert_eq!(status["lease"]["subnet"], "10.5.1.0/24", "{status}");
        assert_eq!(
            (&status["lease"]["assigned"], &status["lease"]["expires_at"]),
            (&true.into(), &().into())
        );
        assert_eq!(
            status["store"]["endpoints"][0],
            "the cluster's own API server"
        );
        assert_eq!(status["peers"][0]["public_ip"], "192.0.2.2", "{status}");
        assert!(
            std::fs::read_to_string("/run/flannel/subnet.env")
                .expect("subnet.env")
                .contains("10.5.1.1/24")
        );
    });
}

/// Creates the own Node again, with this pod CIDR.
fn assign(pod: &Pod, cidr: &str) {
    pod.double.change(|state| {
        let mut own = node("own", 1);
        own["spec"] = json!({ "podCIDR": cidr, "podCIDRs": [cidr] });
        own["metadata"]["uid"] = cidr.into();
        state.remove("own");
        state.put(own);
    });
}

/// A pod CIDR without room for a bridge and pods, and one outside of the network, are waited out.
#[test]
fn a_pod_cidr_that_cannot_be_served_is_named_and_a_better_one_taken() {
    in_pod(async |mut pod| {
        with_own(&pod);
        assign(&pod, "10.5.1.7/32");
        pod.start();
        for (cidr, reason) in [
            (
                "10.5.1.7/32",
                "its pod CIDR 10.5.1.7/32 has no address for a bridge and pods; assign it at most \
                 a /30",
            ),
            ("10.5.1.6/31", "its pod CIDR 10.5.1.6/31 has no address"),
            ("10.9.1.0/24", "which is not in the network 10.5.0.0/16"),
        ] {
            assign(&pod, cidr);
            let named = |status: &serde_json::Value| {
                status["lease_problem"]
                    .as_str()
                    .is_some_and(|problem| problem.contains(reason))
            };
            let status = pod.until(reason, named).await;
            assert_eq!(status["ready"], false, "{status}");
            assert!(
                !std::path::Path::new("/run/flannel/subnet.env").exists(),
                "{cidr}"
            );
        }
        assign(&pod, "10.5.1.0/30");
        let status = pod.until_ready().await;
        assert_eq!(
            (&status["lease"]["subnet"], &status["lease_problem"]),
            (&"10.5.1.0/30".into(), &().into())
        );
        let env = || std::fs::read_to_string("/run/flannel/subnet.env").expect("subnet.env");
        assert!(env().contains("FLANNEL_SUBNET=10.5.1.1/30"), "{}", env());
        // While it runs.
        assign(&pod, "10.5.1.7/32");
        let refused = |status: &serde_json::Value| {
            status["lease_problem"]
                .as_str()
                .is_some_and(|problem| problem.contains("10.5.1.7/32 has no address"))
        };
        let status = pod.until("the reason", refused).await;
        assert_eq!(
            (&status["ready"], &status["lease"]["held"]),
            (&false.into(), &false.into()),
            "{status}"
        );
        assert!(env().contains("FLANNEL_SUBNET=10.5.1.1/30"), "{}", env());
    });
}

/// The Node is its identity: another address changes the annotations only.
#[test]
fn a_node_with_another_address_after_a_restart_keeps_its_subnet() {
    in_pod(async |mut pod| {
        with_own(&pod);
        pod.start();
        let before = pod.until_ready().await["lease"].clone();
        pod.stop();
        run("ip addr del 192.0.2.1/24 dev eth0");
        run("ip addr add 192.0.2.61/24 dev eth0");
        run("ip route replace default via 192.0.2.254");
        pod.start();
        let after = pod.until_ready().await["lease"].clone();
        assert_eq!(
            (&after["subnet"], &after["public_ip"]),
            (&before["subnet"], &"192.0.2.61".into())
        );
    });
}

#[test]
fn a_server_of_another_authority_is_not_talked_to() {
    in_pod(async |mut pod| {
        with_own(&pod);
        let stranger = Authority::new(std::path::Path::new("/run"), "stranger");
        Pod::mount(
            "ca.crt",
            &std::fs::read_to_string(stranger.file()).expect("a certificate"),
        );
        pod.start();
        pod.until("the reason", |_| Pod::log().contains("certificate"))
            .await;
        assert_eq!(pod.double.count("nodes"), 0, "not a word");
        // The kubelet brings the right one.
        let trusted = std::fs::read_to_string(pod.authority.file()).expect("a certificate");
        Pod::mount("ca.crt", &trusted);
        pod.until_ready().await;
    });
}

/// The library reads the file once a minute; a refusal does not wait for that.
#[test]
fn a_token_that_expired_is_read_again_at_once() {
    in_pod(async |mut pod| {
        with_own(&pod);
        pod.start();
        pod.until_ready().await;
        pod.double.change(|state| {
            state.require("second");
            state.break_streams();
            state.put(node("peer3", 3));
        });
        let status = pod
            .until("the refusal", |status| status["store"]["in_sync"] == false)
            .await;
        assert!(
            status["store"]["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("Unauthorized")),
            "{status}"
        );
        assert_eq!(
            status["peers"].as_array().map(Vec::len),
            Some(1),
            "peers stay"
        );
        Pod::mount("token", "second");
        pod.until("the new peer", |status| {
            status["ready"] == true && status["peers"][1]["public_ip"] == "192.0.2.3"
        })
        .await;
    });
}

#[test]
fn a_server_that_restarts_is_waited_for() {
    in_pod(async |mut pod| {
        with_own(&pod);
        pod.start();
        pod.until_ready().await;
        pod.double.fall();
        let status = pod
            .until("the outage", |status| status["store"]["in_sync"] == false)
            .await;
        assert_eq!(
            (&status["ready"], status["peers"].as_array().map(Vec::len)),
            (&false.into(), Some(1)),
            "{status}"
        );
        pod.double.change(|state| state.remove("peer2"));
        pod.double.change(State::compact);
        pod.double.rise();
        pod.until("no peer", |status| {
            status["ready"] == true && status["peers"] == json!([])
        })
        .await;
        let log = Pod::log();
        assert_eq!(
            log.matches("is back").count(),
            1,
            "one message for the recovery:\n{log}"
        );
        assert!(
            !log.contains("the store is out of reach"),
            "one message for the outage:\n{log}"
        );
        // Of the Nodes, and of the Pods where that watch was sooner back.
        let of_history: Vec<_> = log.lines().filter(|line| line.contains("(410)")).collect();
        let is_debug = of_history.iter().all(|line| line.contains("DEBUG"));
        assert!(
            !of_history.is_empty() && is_debug,
            "lost history is no outage:\n{log}"
        );
    });
}

/// As if the server's address had moved to another machine, or a proxy had lost its connections:
/// packets are dropped, and no end of the connection says so.
#[test]
fn a_server_that_is_gone_without_a_word_is_noticed_before_the_silence_of_its_watch() {
    in_pod(async |mut pod| {
        with_own(&pod);
        pod.start();
        pod.until_ready().await;
        pod.double.asked("watch=true", 1).await;
        run("nft add table inet gone");
        run("nft add chain inet gone in { type filter hook input priority -300 ; }");
        for end in ["sport", "dport"] {
            run(&format!(
                "nft add rule inet gone in tcp {end} {} drop",
                pod.double.port()
            ));
        }
        let begun = Instant::now();
        pod.double.change(|state| state.put(node("peer3", 3)));
        let status = pod
            .until("the loss", |status| status["store"]["in_sync"] == false)
            .await;
        println!(
            "noticed after {:?}: {}",
            begun.elapsed(),
            status["store"]["reason"]
        );
        assert_eq!(status["ready"], false, "{status}");
        run("nft delete table inet gone");
        pod.until("the new peer", |status| {
            status["ready"] == true && status["peers"][1]["public_ip"] == "192.0.2.3"
        })
        .await;
    });
}

/// Pods are kept off a node whose network is unavailable, so a mere outage of the store must not
/// report that. Patches are served all the time: a wrong one would be seen.
#[test]
fn an_outage_of_the_api_server_leaves_the_network_available() {
    in_pod(async |mut pod| {
        with_own(&pod);
        pod.start();
        pod.until_ready().await;
        pod.double.wrote_conditions(&["False"]).await;
        let watches = pod.double.count("watch=true");
        pod.double.change(State::lose_nodes);
        let status = pod
            .until("the outage", |status| status["store"]["in_sync"] == false)
            .await;
        assert_eq!(
            (&status["ready"], status["peers"].as_array().map(Vec::len)),
            (&false.into(), Some(1)),
            "{status}"
        );
        // The delays before the eighth attempt are at least 0.8 * (0.1 + 0.2 + 0.4 + 0.8 + 1.6 +
        // 3.2 + 5 + 5) s: more than the 10 s after which a loss is written.
        pod.double.asked("watch=true", watches + 8).await;
        pod.double.wrote_conditions(&["False"]).await;

        // The node's own loss is written during an outage as well.
        run("ip addr del 192.0.2.1/24 dev eth0");
        pod.double.wrote_conditions(&["False", "True"]).await;
        run("ip addr add 192.0.2.1/24 dev eth0");
        pod.double
            .wrote_conditions(&["False", "True", "False"])
            .await;
        pod.double.change(State::serve_nodes);
        pod.until_ready().await;
        pod.double
            .wrote_conditions(&["False", "True", "False"])
            .await;
    });
}

/// The agent has a lease and knows no peer: neither a new agent nor a restarted one may write a
/// condition about its network.
#[test]
fn an_agent_that_starts_in_an_outage_writes_no_condition_before_it_has_read_the_nodes() {
    in_pod(async |mut pod| {
        with_own(&pod);
        pod.double.change(State::lose_nodes);
        pod.start();
        for before in [&[][..], &["False"]] {
            let listings = pod.double.count(LIST);
            pod.until("a lease", |status| {
                status["lease"]["held"] == true && status["error"].is_null()
            })
            .await;
            pod.double.asked(LIST, listings + 4).await;
            pod.double.wrote_conditions(before).await;
            pod.double.change(State::serve_nodes);
            pod.double
                .wrote_conditions(&[before, &["False"]].concat())
                .await;
            pod.stop();
            pod.double.change(State::lose_nodes);
            pod.start();
        }
        let ours = format!("flannel-agent/{}", env!("CARGO_PKG_VERSION"));
        let seen = pod.double.change(|state| state.user_agents.clone());
        assert_eq!(
            seen.into_iter().collect::<Vec<_>>(),
            [ours],
            "every request says who asks"
        );
    });
}
