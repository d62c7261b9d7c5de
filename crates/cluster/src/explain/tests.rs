//! Both ends of a packet's way, asked through the double of an API server.

use flannel_explain::Transport;
use serde_json::{Value, json};

use super::{end::PacketEndName, *};
use crate::testing::{
    api_double::{ApiDouble, Objects, PodAnswer},
    nodes::{agent_pods, node_json},
};

fn pod(name: &str, node: &str, address: &str) -> (&'static str, Value) {
    let status = json!({ "phase": "Running", "podIP": address });
    (
        "default",
        json!({ "metadata": { "name": name }, "spec": { "nodeName": node }, "status": status }),
    )
}

/// The output of an agent whose second step has this state.
fn output(state: &str, reaches: Option<bool>) -> PodAnswer {
    let step = |topic: &str, state: &str| {
        json!({
            "topic": topic,
            "state": state,
            "text": format!("of {topic}"),
        })
    };
    let document = json!({
        "source": "10.244.1.5", "destination": "10.244.2.7", "protocol": "tcp",
        "steps": [step("source", "ok"), step("route", state)],
        "programs": [], "verdict": { "reaches": reaches, "way": "kernel", "text": "of all" },
    });
    PodAnswer::Output(document.to_string())
}

fn passes() -> PodAnswer {
    output("ok", Some(true))
}

/// Two nodes with these answers, a pod on each, and a second one on the first.
async fn cluster(first: Option<PodAnswer>, second: Option<PodAnswer>) -> ApiDouble {
    let nodes = vec![(node_json(1), first), (node_json(2), second)];
    let pods = vec![
        pod("client", "n1", "10.244.1.5"),
        pod("other", "n1", "10.244.1.6"),
        pod("web", "n2", "10.244.2.7"),
    ];
    ApiDouble::start(Objects {
        nodes,
        pods,
        ..Objects::default()
    })
    .await
}

async fn report(
    cluster: &ApiDouble,
    source: &str,
    destination: &str,
) -> Result<PacketReport, EndError> {
    traced(cluster, source, destination, None).await
}

async fn traced(
    cluster: &ApiDouble,
    source: &str,
    destination: &str,
    trace: Option<Duration>,
) -> Result<PacketReport, EndError> {
    let pods = agent_pods();
    let [source, destination] =
        [source, destination].map(|text| text.parse::<PacketEndName>().expect("a name"));
    let question = |source, destination| Question {
        source,
        destination,
        transport: Transport::Tcp,
        sport: None,
        dport: Some(80),
    };
    let packet = AskedPacket { question, trace };
    PacketReport::ask(
        &cluster.client,
        &pods,
        [&source, &destination],
        packet,
        &mut Progress::new(),
    )
    .await
}

async fn verdict(first: Option<PodAnswer>, second: Option<PodAnswer>) -> (Option<bool>, String) {
    let cluster = cluster(first, second).await;
    let verdict = report(&cluster, "client", "web")
        .await
        .expect("a report")
        .verdict;
    (verdict.reaches, verdict.text)
}

#[tokio::test]
async fn a_packet_reaches_its_end_if_both_nodes_say_so() {
    let cluster = cluster(Some(passes()), Some(passes())).await;
    let report = report(&cluster, "client", "default/web")
        .await
        .expect("a report");
    assert_eq!(report.verdict.reaches, Some(true), "{report:?}");
    assert!(
        report
            .verdict
            .text
            .starts_with("no step is broken on n1 and n2;"),
        "{}",
        report.verdict.text
    );
    assert_eq!(
        report
            .nodes
            .iter()
            .map(|answer| answer.node.as_str())
            .collect::<Vec<_>>(),
        ["n1", "n2"]
    );
    let mut commands = cluster.objects().commands.clone();
    commands.sort();
    let line = "flannel-agent explain 10.244.1.5 10.244.2.7 --proto=tcp --dport=80 --output=json";
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    assert_eq!(
        commands,
        [("n1".to_owned(), words.clone()), ("n2".to_owned(), words)],
        "the same packet on both"
    );
}

#[tokio::test]
async fn both_nodes_trace_the_packets_if_that_is_asked_for() {
    let cluster = cluster(Some(passes()), Some(passes())).await;
    traced(&cluster, "client", "web", Some(Duration::from_secs(10)))
        .await
        .expect("a report");
    let commands = cluster.objects().commands.clone();
    assert_eq!(commands.len(), 2);
    for (node, words) in commands {
        assert_eq!(
            words[5..],
            ["--dport=80", "--trace=10", "--output=json"],
            "{node}"
        );
    }
}

#[tokio::test]
async fn a_loss_at_the_far_end_is_named_with_node_step_and_cause() {
    let (reaches, text) = verdict(Some(passes()), Some(output("fail", Some(false)))).await;
    assert_eq!(
        (reaches, &*text),
        (Some(false), "n2, step 2 (route): of route")
    );
    let (reaches, text) = verdict(
        Some(PodAnswer::Forbidden),
        Some(output("fail", Some(false))),
    )
    .await;
    assert_eq!(
        (reaches, &*text),
        (Some(false), "n2, step 2 (route): of route"),
        "one loss is enough"
    );
}

#[tokio::test]
async fn an_end_that_cannot_be_asked_or_does_not_know_makes_the_verdict_unknown() {
    for (answer, reason) in [
        (
            Some(PodAnswer::Forbidden),
            "n2 cannot be asked: no command can be run in pod pod-n2: ",
        ),
        (
            Some(PodAnswer::NoProgram),
            "n2 cannot be asked: it runs stock flannel",
        ),
        (
            Some(PodAnswer::Output(String::new())),
            "n2 cannot be asked: `flannel-agent explain` has no result",
        ),
        (
            None,
            "n2 cannot be asked: no pod of flannel in namespace kube-flannel",
        ),
        (
            Some(output("unknown", None)),
            "n2 does not know, step 2 (route): of route",
        ),
    ] {
        let (reaches, text) = verdict(Some(passes()), answer).await;
        assert!(
            reaches.is_none() && text.starts_with(reason),
            "{reason}: {text}"
        );
    }
}

#[tokio::test]
async fn a_node_with_both_pods_is_asked_once() {
    let cluster = cluster(Some(passes()), None).await;
    let report = report(&cluster, "client", "other").await.expect("a report");
    assert_eq!(report.verdict.reaches, Some(true), "{report:?}");
    assert_eq!(report.nodes.len(), 1);
    assert_eq!(
        report.nodes[0].ends,
        [EndRole::Source, EndRole::Destination]
    );
    assert_eq!(cluster.objects().commands.len(), 1);
}

#[tokio::test]
async fn an_address_is_on_the_node_with_its_subnet_or_on_that_with_the_address() {
    let cluster = cluster(Some(passes()), Some(passes())).await;
    cluster.objects().nodes[1].0["status"] =
        json!({ "addresses": [{ "type": "InternalIP", "address": "192.0.2.2" }] });
    let found = report(&cluster, "10.244.1.9", "192.0.2.2")
        .await
        .expect("a report");
    let ends = [&found.source, &found.destination].map(|end| (end.node.as_str(), end.host_network));
    assert_eq!(ends, [("n1", false), ("n2", true)]);
    let error = report(&cluster, "client", "10.96.0.1")
        .await
        .expect_err("a Service");
    assert!(
        error
            .to_string()
            .starts_with("10.96.0.1 is neither in the subnet of a node"),
        "{error}"
    );
}

#[tokio::test]
async fn a_pod_that_the_cluster_does_not_have_is_named() {
    let cluster = cluster(Some(passes()), Some(passes())).await;
    let error = report(&cluster, "client", "shop/web")
        .await
        .expect_err("no such pod");
    assert_eq!(
        error.to_string(),
        "looking for the pod shop/web: pods \"web\" not found"
    );
    assert_eq!(cluster.objects().commands, []);
}

#[test]
fn the_schema_is_that_of_the_types() {
    flannel_json_schema::check::<PacketReport>(PacketReport::NAME, PacketReport::SCHEMA_VERSION);
}
