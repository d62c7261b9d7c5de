//! Nodes that stream documents, hang, end, come and go.

use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::{
    testing::{
        api_double::{ApiDouble, PodAnswer},
        nodes::agent_pods,
    },
    top::{Follower, board::DocumentState, stream::StreamSettings},
};

/// Until a board is as expected, on a machine under load.
const LIMIT: Duration = Duration::from_mins(1);
const TICK: Duration = Duration::from_millis(50);

/// Documents with these rates, one a tick, and what follows.
fn stream(rates: impl IntoIterator<Item = u32>, then: PodAnswer) -> PodAnswer {
    let lines = rates
        .into_iter()
        .map(|packets| document(f64::from(packets)).to_string())
        .collect();
    PodAnswer::Lines(lines, TICK, Box::new(then))
}

/// Documents for as long as a test takes.
fn endless() -> PodAnswer {
    stream(std::iter::repeat_n(7, 2000), PodAnswer::Hangs)
}

async fn start(answers: Vec<Option<PodAnswer>>) -> (ApiDouble, Follower) {
    let double = ApiDouble::with_answers(answers).await;
    let pods = agent_pods();
    let settings = StreamSettings {
        interval: TICK,
        rows: 50,
        silence: Duration::from_secs(2),
        listing: Duration::from_millis(200),
    };
    let follower = Follower::start(double.client.clone(), pods, settings)
        .await
        .expect("a list of nodes");
    (double, follower)
}

/// The first board that is as expected.
async fn until(
    follower: &mut Follower,
    is_expected: impl Fn(&ClusterBoard) -> bool,
) -> ClusterBoard {
    let mut last = None;
    let found = timeout(LIMIT, async {
        loop {
            let board = follower.next().await;
            if is_expected(&board) {
                return board;
            }
            last = Some(board);
        }
    });
    let found = found.await;
    found.unwrap_or_else(|_| panic!("the last board: {last:#?}"))
}

fn state(board: &ClusterBoard, name: &str) -> Option<DocumentState> {
    board
        .nodes
        .iter()
        .find(|row| row.node == name)
        .map(|row| row.state)
}

fn rate(board: &ClusterBoard, name: &str) -> Option<f64> {
    board
        .nodes
        .iter()
        .find(|row| row.node == name)?
        .packets_per_second
}

fn runs(double: &ApiDouble, name: &str) -> usize {
    double
        .objects()
        .commands
        .iter()
        .filter(|(node, _)| node == name)
        .count()
}

#[tokio::test]
async fn the_last_document_of_each_node_counts() {
    let (double, mut follower) = start(vec![
        Some(stream([1, 2, 3], PodAnswer::Hangs)),
        Some(stream([10, 20, 30], PodAnswer::Hangs)),
    ])
    .await;
    let board = until(&mut follower, |board| {
        rate(board, "n1") == Some(3.0) && rate(board, "n2") == Some(30.0)
    })
    .await;
    assert_eq!(board.nodes[0].node, "n2", "the busiest first");
    assert_eq!(
        (runs(&double, "n1"), runs(&double, "n2")),
        (1, 1),
        "one command for all documents"
    );
    let words = double.objects().commands[0].1.join(" ");
    assert_eq!(
        words,
        "flannel-agent top --output=json --interval=1 --rows=50 --count=600"
    );
}

#[tokio::test]
async fn nodes_without_documents_do_not_hold_the_others_up() {
    let (double, mut follower) = start(vec![
        Some(endless()),
        Some(PodAnswer::Hangs),
        Some(PodAnswer::NoProgram),
        None,
        Some(stream([1], PodAnswer::Hangs)),
    ])
    .await;
    until(&mut follower, |board| rate(board, "n1") == Some(7.0)).await;
    let silent = |board: &ClusterBoard, name| state(board, name) == Some(DocumentState::NoAnswer);
    let board = until(&mut follower, |board| {
        silent(board, "n2") && silent(board, "n5")
    })
    .await;
    assert_eq!(rate(&board, "n1"), Some(7.0));
    assert_eq!(
        (rate(&board, "n5"), state(&board, "n3")),
        (None, Some(DocumentState::StockFlannel))
    );
    let lines: Vec<String> = board
        .problems
        .iter()
        .map(|line| format!("{}: {}", line.node, line.text))
        .collect();
    let hangs = "n5: no answer: the command in pod pod-n5 wrote no line for 2 s";
    assert!(lines.iter().any(|line| line == hangs), "{lines:#?}");
    assert!(
        lines.contains(&"n4: no answer: no pod of flannel in namespace kube-flannel".to_owned()),
        "{lines:#?}"
    );
    assert_eq!(runs(&double, "n4"), 0);
}

#[tokio::test]
async fn a_node_whose_connection_ends_is_asked_again() {
    let (double, mut follower) = start(vec![Some(stream([5], PodAnswer::Breaks))]).await;
    let board = until(&mut follower, |board| {
        state(board, "n1") == Some(DocumentState::NoAnswer)
    })
    .await;
    let reason = board.nodes[0].reason.clone().expect("a reason");
    assert_eq!(
        reason,
        "the connection to pod pod-n1 broke before the command ended"
    );
    double.objects().nodes[0].1 = Some(endless());
    until(&mut follower, |board| rate(board, "n1") == Some(7.0)).await;
}

#[tokio::test]
async fn a_command_that_ends_as_it_was_asked_to_starts_again_without_a_gap() {
    let end = PodAnswer::Output(String::new());
    let (double, mut follower) = start(vec![Some(stream([5, 5], end))]).await;
    until(&mut follower, |board| {
        assert!(
            matches!(
                state(board, "n1"),
                Some(DocumentState::Live | DocumentState::Asked)
            ),
            "{board:#?}"
        );
        runs(&double, "n1") >= 3
    })
    .await;
}

#[tokio::test]
async fn a_command_that_fails_says_why() {
    let (_double, mut follower) =
        start(vec![Some(PodAnswer::Output("no document".to_owned()))]).await;
    let board = until(&mut follower, |board| {
        state(board, "n1") == Some(DocumentState::NoAnswer)
    })
    .await;
    let reason = board.nodes[0].reason.clone().expect("a reason");
    assert!(
        reason.starts_with("its output cannot be read: "),
        "{reason}"
    );
}

#[tokio::test]
async fn nodes_join_and_leave() {
    let (double, mut follower) = start(vec![Some(endless())]).await;
    until(&mut follower, |board| {
        state(board, "n1") == Some(DocumentState::Live)
    })
    .await;
    double.objects().nodes.push((node_json(2), Some(endless())));
    until(&mut follower, |board| {
        state(board, "n2") == Some(DocumentState::Live)
    })
    .await;
    double.objects().nodes.remove(0);
    let board = until(&mut follower, |board| state(board, "n1").is_none()).await;
    assert_eq!(
        state(&board, "n2"),
        Some(DocumentState::Live),
        "it is followed on"
    );
    assert_eq!(runs(&double, "n2"), 1);
}

#[tokio::test]
async fn a_line_that_is_too_long_ends_the_command() {
    use tokio::sync::mpsc;

    use crate::exec::{Container, LineLimits};
    let line = |length| {
        PodAnswer::Lines(
            vec!["x".repeat(length)],
            TICK,
            Box::new(PodAnswer::Output(String::new())),
        )
    };
    let (double, _follower) = start(vec![Some(line(16)), Some(line(17))]).await;
    let limits = LineLimits {
        bytes: 17,
        silence: LIMIT,
    };
    let run = async |node: &str| {
        let (sender, mut lines) = mpsc::channel(1);
        let namespace = "kube-flannel".to_owned();
        let container = Container {
            namespace,
            pod: format!("pod-{node}"),
            name: "kube-flannel".to_owned(),
        };
        let ended = double
            .client
            .exec_lines(&container, &["x"], limits, sender)
            .await;
        (
            ended
                .map(|executed| executed.code)
                .map_err(|error| error.to_string()),
            lines.recv().await.map(|line| line.len()),
        )
    };
    assert_eq!(run("n1").await, (Ok(0), Some(16)));
    assert_eq!(
        run("n2").await,
        (
            Err("the command in pod pod-n2 wrote more than 17 bytes".to_owned()),
            None
        )
    );
}
