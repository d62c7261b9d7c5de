//! Events of several nodes, streamed by the double of an API server.

use std::{
    future::pending,
    sync::{Mutex, MutexGuard, PoisonError},
};

use flannel_cluster::testing::{
    api_double::{ApiDouble, PodAnswer},
    nodes::agent_pods,
};
use flannel_document::Document as _;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::*;
use crate::flows::tests::{end, options};

/// Longer than anything takes that works.
const LIMIT: Duration = Duration::from_mins(1);
const TICK: Duration = Duration::from_millis(20);

/// A line of `flows list --follow -o json`: a packet from this port.
fn event(port: u16) -> String {
    let source = format!("10.244.1.5:{port}");
    let line = json!({
        "schema_version": 1,
        "time": "2026-01-02T13:05:01.123000000Z",
        "event": "new",
        "program": "from_pod",
        "reason": "a_new_reason",
        "direction": "egress",
        "protocol": "tcp",
        "from": end(&source, Some("shop/web")),
        "to": end("10.244.2.7:80", None),
        "out_from": null,
        "out_to": null,
        "is_reply": false,
        "way": null,
        "interface": "veth1", "ifindex": 3, "packets": 1, "bytes": 74,
    });
    line.to_string()
}

fn heartbeat(missed: u64, problem: Option<&str>) -> String {
    json!({ "heartbeat": { "missed": missed, "problem": problem } }).to_string()
}

/// A heartbeat and the events of these ports, one a tick, and what follows.
fn lines(ports: impl IntoIterator<Item = u16>, then: PodAnswer) -> PodAnswer {
    let lines = [heartbeat(0, None)]
        .into_iter()
        .chain(ports.into_iter().map(event))
        .collect();
    PodAnswer::Lines(lines, TICK, Box::new(then))
}

/// The lines that were said.
type Said = Arc<Mutex<Vec<String>>>;

fn locked(said: &Said) -> MutexGuard<'_, Vec<String>> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Followed<S> {
    double: ApiDouble,
    follower: EventFollower<S>,
    queue: mpsc::Receiver<ClusterFlowEvent>,
    said: Said,
}

async fn start(answers: Vec<Option<PodAnswer>>, flags: &str) -> Followed<impl FnMut(&str)> {
    start_with(answers, flags, |_| ()).await
}

/// The same with other settings. By default states are said at once, and a node is silent soon.
async fn start_with(
    answers: Vec<Option<PodAnswer>>,
    flags: &str,
    change: impl FnOnce(&mut FollowSettings),
) -> Followed<impl FnMut(&str)> {
    let double = ApiDouble::with_answers(answers).await;
    let pods = agent_pods();
    let (silence, listing) = (Duration::from_secs(2), Duration::from_millis(200));
    let command = options(&format!("--follow {flags}")).follow_command();
    let mut settings = FollowSettings {
        command,
        silence,
        listing,
        queue: QUEUE,
        pause: Duration::ZERO,
    };
    change(&mut settings);
    let said = Said::default();
    let kept = said.clone();
    let say = move |line: &str| locked(&kept).push(line.to_owned());
    let started = EventFollower::start(double.client.clone(), pods, settings, say).await;
    let (follower, queue) = started.expect("a list of nodes");
    Followed {
        double,
        follower,
        queue,
        said,
    }
}

impl<S: FnMut(&str)> Followed<S> {
    /// Follows until this is true.
    async fn until(&mut self, is_expected: impl Fn(&Self) -> bool) {
        let begun = tokio::time::Instant::now();
        while !is_expected(self) {
            assert!(begun.elapsed() < LIMIT, "said: {:#?}", locked(&self.said));
            let mut printed = tokio::spawn(pending());
            let _ = timeout(TICK, self.follower.follow(&mut printed)).await;
            printed.abort();
        }
    }

    async fn until_said(&mut self, line: &str) {
        self.until(|followed| locked(&followed.said).iter().any(|said| said == line))
            .await;
    }

    /// The next events: their nodes and their ports.
    async fn events(&mut self, number: usize) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        while found.len() < number {
            let event = timeout(LIMIT, self.queue.recv())
                .await
                .expect("an event")
                .expect("an event");
            let port = serde_json::to_value(&event).expect("a document")["from"]["port"].as_u64();
            found.push((event.node, port.expect("a port")));
        }
        found
    }
}

#[tokio::test]
async fn the_events_of_all_nodes_are_one_stream() {
    let answers = vec![
        Some(lines([1, 2, 3], PodAnswer::Hangs)),
        Some(lines([11, 12, 13], PodAnswer::Hangs)),
    ];
    let mut followed = start(answers, "--verdict=dropped --rate=50 --pod=web -N shop").await;
    let found = followed.events(6).await;
    for (node, ports) in [("n1", [1, 2, 3]), ("n2", [11, 12, 13])] {
        let of_node: Vec<_> = found
            .iter()
            .filter(|(name, _)| name == node)
            .map(|(_, port)| *port)
            .collect();
        assert_eq!(of_node, ports, "in their order: {found:?}");
    }
    let words = followed.double.objects().commands[0].1.join(" ");
    let expected = "flannel-agent flows list --output=json --follow --remote --rate=50 \
        --verdict=dropped --pod=web \
                    --namespace=shop";
    assert_eq!(words, expected);
    assert_eq!(
        followed.follower.summary().split(';').next(),
        Some("0 events shown")
    );
    assert_eq!(
        *locked(&followed.said),
        ["following the flows of 2 nodes; Ctrl-C ends it"]
    );
}

#[tokio::test]
async fn a_line_has_the_node_in_front() {
    let mut followed = start(vec![Some(lines([1], PodAnswer::Hangs))], "").await;
    let event = timeout(LIMIT, followed.queue.recv())
        .await
        .expect("in time")
        .expect("an event");
    let form = |is_json| EventForm {
        is_json,
        width: 4,
        count: None,
    };
    let text = "n1    13:05:01.123  new      tcp    shop/web:1 -> 10.244.2.7:80, a_new_reason at \
        from_pod\n";
    assert_eq!(form(false).line(&event), text);
    let document = form(true).line(&event);
    assert!(
        document.starts_with(r#"{"schema_version":1,"node":"n1","time":"#),
        "{document}"
    );
    let read: Value = serde_json::from_str(&document).expect("a document");
    assert_eq!(
        (read["reason"].as_str(), read["from"]["pod"].as_str()),
        (Some("a_new_reason"), Some("shop/web"))
    );
}

#[tokio::test]
async fn a_node_whose_stream_ends_is_named_and_asked_again() {
    let answers = vec![
        Some(lines([1], PodAnswer::Breaks)),
        Some(PodAnswer::Hangs),
        Some(PodAnswer::NoProgram),
        None,
        Some(PodAnswer::Forbidden),
    ];
    let mut followed = start(answers, "").await;
    followed
        .until_said(
            "n1: no answer, tried again: the connection to pod pod-n1 broke before the \
            command ended",
        )
        .await;
    followed
        .until_said("n2: no answer, tried again: the command in pod pod-n2 wrote no line for 2 s")
        .await;
    followed
        .until_said("n3: stock flannel runs there, which has no flows")
        .await;
    followed
        .until_said("n4: no answer, tried again: no pod of flannel in namespace kube-flannel")
        .await;
    let is_refusal = |said: &String| {
        said.starts_with("n5: no answer, tried again: ") && said.contains("; the guide on clusters")
    };
    followed
        .until(|followed| locked(&followed.said).iter().any(is_refusal))
        .await;
    followed.double.objects().nodes[0].1 = Some(lines([2], PodAnswer::Hangs));
    followed.until_said("n1: its events come again").await;
    while followed.events(1).await != [("n1".to_owned(), 2)] {}
    let lines_about = |node: &str| {
        locked(&followed.said)
            .iter()
            .filter(|line| line.starts_with(node))
            .count()
    };
    assert_eq!(
        ["n2", "n3", "n4"].map(lines_about),
        [1, 1, 1],
        "each once: {:#?}",
        locked(&followed.said)
    );
}

#[tokio::test]
async fn a_node_that_comes_and_goes_is_named_once_a_while() {
    let change = |settings: &mut FollowSettings| settings.pause = 2 * LIMIT;
    let answers = vec![Some(lines([1], PodAnswer::Breaks))];
    let mut followed = start_with(answers, "", change).await;
    let lines_about = |followed: &Followed<_>| {
        let said = locked(&followed.said);
        said.iter().filter(|line| line.starts_with("n1")).count()
    };
    followed.until(|followed| lines_about(followed) == 1).await;
    // It comes again and goes again, three times.
    let asked = |followed: &Followed<_>| followed.double.objects().commands.len();
    let before = asked(&followed);
    followed
        .until(|followed| asked(followed) >= before + 3)
        .await;
    assert_eq!(lines_about(&followed), 1, "{:#?}", locked(&followed.said));
    // The state of then is said when the pause is over.
    followed.double.objects().nodes[0].1 = Some(lines([2], PodAnswer::Hangs));
    while followed.events(1).await != [("n1".to_owned(), 2)] {}
    followed.follower.settings.pause = Duration::ZERO;
    followed.until_said("n1: its events come again").await;
}

#[tokio::test]
async fn events_that_find_the_queue_full_are_counted() {
    let answers = vec![Some(lines(1..=8, PodAnswer::Hangs))];
    let mut followed = start_with(answers, "", |settings| settings.queue = 3).await;
    followed
        .until(|followed| {
            followed
                .follower
                .summary()
                .contains("; 5 events came faster")
        })
        .await;
    let ports: Vec<_> = followed
        .events(3)
        .await
        .into_iter()
        .map(|(_, port)| port)
        .collect();
    assert_eq!(ports, [1, 2, 3], "the first are kept");
}

#[tokio::test]
async fn what_nodes_miss_is_added_up_and_why_drops_are_not_seen_is_said() {
    let busy = "drops are not shown: a monitor already runs";
    let first = vec![
        heartbeat(5, None),
        heartbeat(8, Some(busy)),
        heartbeat(8, Some(busy)),
        heartbeat(9, None),
    ];
    let answer = |lines, then| Some(PodAnswer::Lines(lines, TICK, Box::new(then)));
    let mut followed = start(vec![answer(first, PodAnswer::Breaks)], "").await;
    followed.until_said(&format!("n1: {busy}")).await;
    followed
        .until(|followed| {
            followed
                .follower
                .summary()
                .contains("; 9 packets came faster")
        })
        .await;
    followed.double.objects().nodes[0].1 = answer(vec![heartbeat(2, None)], PodAnswer::Hangs);
    followed
        .until(|followed| {
            followed
                .follower
                .summary()
                .contains("; 11 packets came faster")
        })
        .await;
}

#[tokio::test]
async fn the_connections_end_with_the_command() {
    let answers = vec![
        Some(lines([1], PodAnswer::Hangs)),
        Some(lines([1], PodAnswer::Hangs)),
    ];
    // A silent one is closed too, and tried again.
    let change = |settings: &mut FollowSettings| settings.silence = 2 * LIMIT;
    let mut followed = start_with(answers, "", change).await;
    followed.events(2).await;
    assert_eq!(followed.double.objects().open, 2);
    let Followed {
        double, follower, ..
    } = followed;
    drop(follower);
    let ended = async {
        while double.objects().open > 0 {
            sleep(TICK).await;
        }
    };
    timeout(LIMIT, ended).await.expect("the commands are gone");
}

#[test]
fn the_schema_is_that_of_the_type() {
    flannel_json_schema::check::<ClusterFlowEvent>(
        ClusterFlowEvent::NAME,
        ClusterFlowEvent::SCHEMA_VERSION,
    );
}
