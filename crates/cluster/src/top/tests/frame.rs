//! Frames of several sizes.

use flannel_top::view::Palette;
use ratatui::{Terminal, backend::TestBackend};

use super::*;
use crate::top::view::ClusterView;

/// The lines of a frame.
fn draw(view: ClusterView<'_>, width: u16, height: u16) -> Vec<String> {
    let mut terminal =
        Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
    terminal
        .draw(|frame| frame.render_widget(view, frame.area()))
        .expect("drawn");
    let symbols: Vec<_> = terminal
        .backend()
        .buffer()
        .content
        .iter()
        .map(ratatui::buffer::Cell::symbol)
        .collect();
    symbols
        .chunks(usize::from(width))
        .map(<[&str]>::concat)
        .collect()
}

fn view<'a>(board: &'a ClusterBoard, keys: &'a str) -> ClusterView<'a> {
    ClusterView {
        board,
        palette: Palette { on: true },
        keys,
        offset: 0,
    }
}

fn line<'a>(lines: &'a [String], part: &str) -> &'a str {
    lines
        .iter()
        .find(|line| line.contains(part))
        .unwrap_or_else(|| panic!("no {part} in {lines:#?}"))
}

fn words(lines: &[String], part: &str) -> Vec<String> {
    line(lines, part)
        .trim_matches(['│', ' '])
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

/// A cluster of many nodes with long names; the last of them does not answer.
fn busy() -> ClusterBoard {
    let state = |number: u32| {
        let mut document = document(f64::from(number) * 1000.0);
        let end = |port: u32| format!("[fd00:10:244:{number}::abcd:1234]:{port}");
        let flows = (1..=9).map(|port| {
            flow(
                &end(port),
                &end(60_000 + port),
                None,
                "pod",
                f64::from(port),
            )
        });
        document["flows"] = json!(flows.collect::<Vec<_>>());
        document["peers"] = json!(
            (1..=9)
                .map(|peer| self::peer(peer, Some(1.0), Some(0.5)))
                .collect::<Vec<_>>()
        );
        document["problems"] = json!([format!("a long problem {}", "and more of it ".repeat(20))]);
        (
            format!("node-with-a-long-name-{number}.example.com"),
            live(document),
        )
    };
    let mut nodes: Vec<_> = (1..=40).map(state).collect();
    nodes.push((
        "n99".to_owned(),
        StreamState::Silent("the command in pod p wrote no line for 14 s".to_owned()),
    ));
    ClusterBoard::new(&nodes, &names(), 50)
}

#[test]
fn a_frame_shows_every_panel() {
    let mut first = document(1234.0);
    first["peers"] = json!([peer(2, Some(300.0), Some(0.0))]);
    first["flows"] = json!([flow(
        "10.244.1.5:40000",
        "10.244.2.7:80",
        None,
        "tunnel",
        250.0
    )]);
    first["problems"] = json!(["refused lease: nonsense"]);
    let hangs = StreamState::Silent("it hangs".to_owned());
    let board = board(vec![live(first), hangs, StreamState::StockFlannel]);
    let lines = draw(view(&board, "q quit"), 100, 40);
    assert!(
        lines[0].starts_with("3 nodes   1 live   1 without an answer   1 with stock flannel"),
        "{lines:#?}"
    );
    assert_eq!(
        words(&lines, "123 k"),
        ["n1", "fast", "1.2", "k", "123", "k", "50", "%", "0", "1"]
    );
    assert_eq!(
        words(&lines, " no answer  "),
        ["n2", "no", "answer", "-", "-", "-", "-", "-"]
    );
    assert_eq!(
        words(&lines, "│n3 "),
        ["n3", "stock", "flannel", "-", "-", "-", "-", "-"]
    );
    assert_eq!(words(&lines, "tunnel"), ["n1", "n2", "tunnel", "2", "300"]);
    assert_eq!(
        words(&lines, ":40000")[..4],
        ["n1", "tcp", "10.244.1.5:40000", "10.244.2.7:80"]
    );
    assert_eq!(
        words(&lines, "nonsense"),
        ["n1", "refused", "lease:", "nonsense"]
    );
    line(&lines, "no answer: it hangs");
    assert!(lines[39].starts_with("q quit"), "{lines:#?}");
}

#[test]
fn a_screen_of_80_columns_and_24_lines_has_every_panel_and_counts_what_does_not_fit() {
    let board = busy();
    let lines = draw(view(&board, " q quit"), 80, 24);
    assert!(
        lines.iter().all(|line| line.chars().count() == 80),
        "{lines:#?}"
    );
    for part in [" nodes (", " pairs of nodes (", " flows (", " problems ("] {
        assert!(line(&lines, part).contains(" more)"), "{lines:#?}");
    }
    for (row, least) in [
        ("fast  ", 5),
        ("tunnel", 2),
        ("[fd00:", 2),
        ("a long problem", 1),
    ] {
        let rows = lines.iter().filter(|line| line.contains(row)).count();
        assert!(rows >= least, "{rows} rows with {row:?}: {lines:#?}");
    }
    assert!(!lines.concat().contains("LEAVES-TO"), "{lines:#?}");
    assert!(lines[23].starts_with(" q quit"), "{lines:#?}");
}

#[test]
fn a_node_has_its_last_ten_minutes_on_a_screen_that_is_not_narrow() {
    let mut first = document(1.0);
    let points: Vec<u64> = (1..=60).collect();
    first["history"] = json!({ "packets_per_second": points, "bits_per_second": points });
    let board = board(vec![live(first), live(document(2.0))]);
    let blocks = |width: u16| {
        let lines = draw(view(&board, "q quit"), width, 30);
        line(&lines, "│n1 ")
            .chars()
            .filter(|symbol| ('\u{2581}'..='\u{2588}').contains(symbol))
            .count()
    };
    assert_eq!([80, 99, 100, 120, 200].map(blocks), [0, 0, 20, 40, 60]);
}

#[test]
fn a_large_screen_shows_more_rows_and_columns() {
    let board = busy();
    let lines = draw(view(&board, " q quit"), 200, 60);
    assert!(
        lines.iter().all(|line| line.chars().count() == 200),
        "{lines:#?}"
    );
    line(&lines, "LEAVES-TO");
    let rows = lines
        .iter()
        .filter(|line| line.contains("node-with-a-long-name-"))
        .count();
    assert!(rows > 40, "{rows} rows: {lines:#?}");
    line(&lines, "node-with-a-long-name-40.example.com");
}

#[test]
fn a_frame_of_any_size_is_drawn() {
    let board = busy();
    for (width, height) in [(1, 1), (10, 3), (80, 10), (300, 200)] {
        draw(view(&board, "q quit"), width, height);
    }
    let printed = view(&board, "");
    let lines = draw(printed, 110, printed.height());
    assert!(
        !line(&lines, " nodes ").contains("more"),
        "a printed frame has all nodes: {lines:#?}"
    );
    assert!(line(&lines, "n99").contains("no answer"), "{lines:#?}");
    draw(view(&ClusterBoard::default(), ""), 80, 24);
}

#[test]
fn rows_scroll() {
    let board = busy();
    let lines = draw(
        ClusterView {
            offset: 5,
            ..view(&board, "q quit")
        },
        80,
        24,
    );
    assert!(line(&lines, " nodes (6-").contains(" of 41)"), "{lines:#?}");
    line(&lines, "node-with-a-long-name-");
}
