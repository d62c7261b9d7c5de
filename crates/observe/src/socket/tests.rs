//! The socket in a separate directory.

use std::{
    fs,
    io::Read as _,
    os::unix::{fs::MetadataExt as _, net::UnixStream as Stream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use flannel_flows::history::{Tick, TickRate};
use flannel_status::ModeStatus;

use super::*;
use crate::connections::{LOCAL, REQUEST_LIMIT};

fn status() -> Status {
    let mode = ModeStatus {
        effective: "kernel".into(),
        wanted: "kernel".into(),
        ..ModeStatus::default()
    };
    Status::without_agent("test", mode)
}

/// A second thread looks at the file while it is made, again and again.
#[tokio::test]
async fn the_socket_never_has_a_wider_mode() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, done) = (status_socket(dir.path()), Arc::new(AtomicBool::new(false)));
    let (seen_at, until) = (path.clone(), Arc::clone(&done));
    let looking = thread::spawn(move || {
        let mut modes = std::collections::BTreeSet::new();
        while !until.load(Ordering::Relaxed) {
            modes.extend(fs::metadata(&seen_at).map(|file| file.mode() & 0o777));
        }
        modes
    });
    for _ in 0..5_000 {
        drop(bind(dir.path()).expect("a socket"));
        assert_eq!(
            fs::metadata(&path).expect("the socket").mode() & 0o777,
            0o600
        );
    }
    done.store(true, Ordering::Relaxed);
    let modes = looking.join().expect("modes");
    assert_eq!(modes.into_iter().collect::<Vec<_>>(), [0o600], "modes seen");
}

#[tokio::test]
async fn silent_clients_keep_no_request_out_and_cost_few_descriptors() {
    let dir = tempfile::tempdir().expect("a directory");
    let (listener, displaced) = (bind(dir.path()).expect("a socket"), Count::default());
    let server = tokio::spawn(serve(
        listener,
        displaced.clone(),
        Answers {
            status,
            metrics: None,
            names: None,
            history: None,
        },
    ));
    let path = status_socket(dir.path());
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(UnixStream::connect(&path).await.expect("a connection"));
    }
    let asked = Instant::now();
    assert!(ask_status(dir.path()).await.is_ok());
    assert!(asked.elapsed() < REQUEST_LIMIT, "{:?}", asked.elapsed());
    let places = u64::try_from(LOCAL).expect("few");
    assert!(
        displaced.get() >= 300 - places,
        "{} displaced",
        displaced.get()
    );
    server.abort();
}

#[tokio::test]
async fn a_client_whose_place_was_taken_asks_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let listener = bind(dir.path()).expect("a socket");
    let server = tokio::spawn(async move {
        for _ in 0..3 {
            drop(listener.accept().await.expect("a client"));
        }
        serve(
            listener,
            Count::default(),
            Answers {
                status,
                metrics: None,
                names: None,
                history: None,
            },
        )
        .await;
    });
    ask_status(dir.path()).await.expect("a status");
    server.abort();
}

#[tokio::test]
async fn the_history_is_answered_where_there_is_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let ask = async |history: Option<SharedHistory>| {
        let answers = Answers {
            status,
            metrics: None,
            names: None,
            history,
        };
        let server = tokio::spawn(serve(
            bind(dir.path()).expect("a socket"),
            Count::default(),
            answers,
        ));
        let answer = ask_history(dir.path()).await;
        server.abort();
        answer
    };
    let history = SharedHistory::default();
    let rate = TickRate {
        packets: Some(2.5),
        bits: None,
    };
    history.record(Tick {
        peers: vec![("10.244.2.0/24".to_owned(), rate)],
        ..Tick::default()
    });
    let found = ask(Some(history)).await.expect("a history");
    assert_eq!(found.peers["10.244.2.0/24"].packets_per_second, [Some(3)]);
    assert_eq!(
        (found.node.packets_per_second, found.pods.len()),
        (vec![None], 0)
    );
    assert!(ask(None).await.is_err());
}

#[tokio::test]
async fn silence_and_garbage_are_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let listener = bind(dir.path()).expect("a socket");
    let server = tokio::spawn(serve(
        listener,
        Count::default(),
        Answers {
            status,
            metrics: None,
            names: None,
            history: None,
        },
    ));
    let path = status_socket(dir.path());
    let begun = Instant::now();
    let mut stream = Stream::connect(&path).expect("a connection");
    let length = tokio::task::spawn_blocking(move || stream.read_to_end(&mut Vec::new()))
        .await
        .expect("a thread");
    assert_eq!(length.expect("an end"), 0);
    assert!(
        (REQUEST_LIMIT..LIMIT).contains(&begun.elapsed()),
        "{:?}",
        begun.elapsed()
    );
    let mut stream = UnixStream::connect(&path).await.expect("a connection");
    stream.write_all(b"what?\n").await.expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.expect("a reply");
    assert!(reply.contains("not a request"), "{reply}");
    server.abort();
}
