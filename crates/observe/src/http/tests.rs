//! The answers, over real connections on loopback.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpStream as Stream},
    thread,
    time::Instant,
};

use flannel_datapath::PinRoot;
use flannel_metrics::{
    Counts, Metrics,
    pulse::Pulse,
    readiness::{Readiness, STALE},
    shared::SharedState,
};
use flannel_options::TrafficSeries;
use flannel_status::{ModeStatus, Status};
use tokio::sync::watch;

use super::*;
use crate::connections::{LIMIT, LOCAL, PER_SOURCE, REMOTE, REQUEST_LIMIT};

const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn status(ready: bool) -> Status {
    let mode = ModeStatus {
        effective: "kernel".into(),
        wanted: "kernel".into(),
        ..ModeStatus::default()
    };
    Status {
        ready,
        ..Status::without_agent("test", mode)
    }
}

fn parts(status: watch::Receiver<Status>) -> (Readiness, Metrics) {
    let readiness = Readiness::new(status, SharedState::default(), Pulse::start());
    let counts = Counts::new().expect("counts");
    let pins = PinRoot::new("/nonexistent".as_ref());
    let series = TrafficSeries {
        peers: 0,
        pods: false,
    };
    (
        readiness.clone(),
        Metrics::new(readiness, SharedState::default(), counts, pins, series),
    )
}

fn start(address: SocketAddr, status: watch::Receiver<Status>) -> HttpServer {
    let (readiness, metrics) = parts(status);
    serve(
        address,
        HealthRoutes::All(readiness, metrics),
        &SharedListeners::default(),
    )
}

fn serve(address: SocketAddr, routes: HealthRoutes, listeners: &SharedListeners) -> HttpServer {
    HttpServer::start(address, routes, Count::default(), listeners).expect("a thread")
}

fn server(ready: bool) -> (HttpServer, watch::Sender<Status>) {
    let (publish, status) = watch::channel(status(ready));
    (start(ANYWHERE, status), publish)
}

fn connect(server: &HttpServer) -> Stream {
    let stream = Stream::connect(server.address()).expect("a connection");
    stream.set_read_timeout(Some(LIMIT * 4)).expect("a limit");
    stream
}

/// Everything the server says, until it closes.
fn rest(mut stream: Stream) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).expect("an end in time");
    String::from_utf8(text).expect("text")
}

fn ask(server: &HttpServer, request: &str) -> String {
    let mut stream = connect(server);
    stream.write_all(request.as_bytes()).expect("sent");
    rest(stream)
}

fn get(server: &HttpServer, path: &str) -> (String, String) {
    let answer = ask(
        server,
        &format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n"),
    );
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let code = head.split(' ').nth(1).expect("a status").to_owned();
    (code, body.to_owned())
}

fn answer_of(code: &str, body: &str) -> (String, String) {
    (code.to_owned(), body.to_owned())
}

#[test]
fn the_texts_are_flanneld_s_and_readiness_drops_again() {
    let (server, publish) = server(false);
    assert_eq!(
        get(&server, "/healthz"),
        answer_of("200", "flanneld is running")
    );
    let not_ready = answer_of("503", "flanneld is not ready yet");
    assert_eq!(get(&server, "/readyz"), not_ready);
    publish.send_replace(status(true));
    assert_eq!(
        get(&server, "/readyz?verbose"),
        answer_of("200", "flanneld is ready")
    );
    publish.send_replace(status(false));
    assert_eq!(get(&server, "/readyz"), not_ready);
    for path in ["/", "/healthz/", "/metrics/"] {
        assert_eq!(get(&server, path).0, "404", "{path}");
    }
}

#[test]
fn every_method_and_both_versions_are_answered() {
    let (server, _publish) = server(true);
    for request in [
        "POST /readyz HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
        "GET /readyz HTTP/1.0\r\n\r\n",
    ] {
        let answer = ask(&server, request);
        assert!(
            answer.contains(" 200 ") && answer.ends_with("flanneld is ready"),
            "{answer}"
        );
    }
    let head = ask(&server, "HEAD /readyz HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        head.contains(" 200 ") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
}

#[test]
fn a_main_loop_that_hangs_is_not_ready() {
    let (_publish, status) = watch::channel(status(true));
    let is_ready = |pulse: &Pulse| {
        Readiness::new(status.clone(), SharedState::default(), pulse.clone()).is_ready()
    };
    assert!(is_ready(&Pulse::start()));
    let pulse = Pulse::last_seen(
        Instant::now()
            .checked_sub(STALE)
            .expect("a machine that is up for a minute"),
    );
    assert!(!is_ready(&pulse));
    pulse.record_heartbeat();
    assert!(is_ready(&pulse));
}

#[test]
fn a_main_loop_that_has_not_turned_for_a_minute_is_not_alive() {
    let (_publish, status) = watch::channel(status(true));
    for (seconds, code) in [(0, "200"), (45, "200"), (61, "503")] {
        let then = Instant::now()
            .checked_sub(Duration::from_secs(seconds))
            .expect("a machine that is up for minutes");
        let readiness = Readiness::new(
            status.clone(),
            SharedState::default(),
            Pulse::last_seen(then),
        );
        let server = serve(
            ANYWHERE,
            HealthRoutes::Health(readiness),
            &SharedListeners::default(),
        );
        assert_eq!(get(&server, "/healthz").0, code, "{seconds}");
    }
}

#[test]
fn an_agent_that_has_ended_its_status_keeps_the_last_word() {
    let (server, publish) = server(true);
    drop(publish);
    assert_eq!(get(&server, "/readyz").0, "200");
}

#[test]
fn each_listener_answers_its_own_paths() {
    let (_publish, status) = watch::channel(status(true));
    let (readiness, metrics) = parts(status);
    for (routes, purpose, flags, codes) in [
        (
            HealthRoutes::Health(readiness.clone()),
            "health checks",
            "healthz",
            ["200", "200", "404"],
        ),
        (
            HealthRoutes::Metrics(metrics.clone()),
            "metrics",
            "metrics",
            ["404", "404", "200"],
        ),
        (
            HealthRoutes::All(readiness, metrics),
            "health checks and metrics",
            "healthz",
            ["200"; 3],
        ),
    ] {
        let listeners = SharedListeners::default();
        let server = serve(ANYWHERE, routes, &listeners);
        let expected = ListenerStatus {
            purpose: purpose.to_owned(),
            address: server.address().to_string(),
            flags: flags.to_owned(),
            error: None,
        };
        assert_eq!(listeners.status(), [expected]);
        let found = ["/healthz", "/readyz", "/metrics"].map(|path| get(&server, path).0);
        assert_eq!(found, codes, "{purpose}");
    }
}

#[test]
fn garbage_costs_the_others_nothing() {
    let (server, _publish) = server(true);
    let silent: Vec<_> = (0..LOCAL - 1).map(|_| connect(&server)).collect();
    let bytes: Vec<u8> = (0..=255).collect();
    for _ in 0..8 {
        let mut stream = connect(&server);
        stream.write_all(&bytes).expect("sent");
        stream.shutdown(Shutdown::Write).expect("shut");
        // Closed with bytes unread is closed by reset, as the case may be.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(get(&server, "/healthz").0, "200");
    drop(silent);
}

/// From this node. What other hosts can do is tried with other hosts:
/// `tests/tests/load/idle_connections.rs`.
#[test]
fn silent_clients_are_displaced_by_those_who_ask() {
    let (server, _publish) = server(true);
    let begun = Instant::now();
    let silent: Vec<_> = (0..4 * LOCAL).map(|_| connect(&server)).collect();
    let asked = Instant::now();
    assert_eq!(get(&server, "/healthz").0, "200");
    assert!(asked.elapsed() < REQUEST_LIMIT, "{:?}", asked.elapsed());
    for mut stream in silent {
        // Those that had to go and those that were silent for too long: both by a reset.
        assert!(stream.read_to_end(&mut Vec::new()).is_err());
    }
    assert!(
        (REQUEST_LIMIT..LIMIT).contains(&begun.elapsed()),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn a_head_that_comes_in_drops_has_no_more_time_than_silence() {
    let (server, _publish) = server(true);
    let (mut stream, begun) = (connect(&server), Instant::now());
    let mut reader = stream.try_clone().expect("the same connection");
    let writer = thread::spawn(move || {
        while stream.write_all(b"X").is_ok() && begun.elapsed() < 2 * LIMIT {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let _ = reader.read_to_end(&mut Vec::new());
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    writer.join().expect("the writer");
}

#[test]
fn a_burst_of_requests_beyond_the_limit_is_answered_whole() {
    let (server, _publish) = server(true);
    let burst: Vec<_> = (0..4 * LOCAL)
        .map(|_| {
            let mut stream = connect(&server);
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n")
                .expect("sent");
            stream
        })
        .collect();
    for stream in burst {
        assert!(rest(stream).contains(" 200 "));
    }
}

#[test]
fn the_limits_leave_room() {
    const { assert!(LOCAL + REMOTE < 256, "descriptors of each listener") };
    const { assert!(PER_SOURCE * 8 <= REMOTE, "one source is a small part") };
}

/// The value of a metric without labels.
fn value<'a>(text: &'a str, metric: &str) -> &'a str {
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    values
        .next()
        .unwrap_or_else(|| panic!("{metric} in {text}"))
}

#[test]
fn metrics_are_answered_in_every_state_and_at_most_a_second_old() {
    let (server, publish) = server(false);
    let begun = Instant::now();
    let answer = ask(&server, "GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n");
    assert!(
        answer.starts_with(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"
        ),
        "{answer}"
    );
    let (_, first) = get(&server, "/metrics");
    assert_eq!(
        [
            value(&first, "flannel_ready"),
            value(&first, "flannel_datapath_readable")
        ],
        ["0", "0"]
    );
    publish.send_replace(status(true));
    let second = get(&server, "/metrics?again").1;
    assert!(
        second == first || begun.elapsed() >= Duration::from_secs(1),
        "made anew too soon"
    );
    let limit = Instant::now() + LIMIT;
    while value(&get(&server, "/metrics").1, "flannel_ready") != "1" {
        assert!(Instant::now() < limit, "an answer of long ago");
    }
    drop(publish);
    assert_eq!(
        get(&server, "/metrics").0,
        "200",
        "also after the end of the main loop"
    );
}

#[test]
fn who_scrapes_and_does_not_read_blocks_no_other_client() {
    let (server, _publish) = server(true);
    let _silent: Vec<_> = (0..LOCAL - 1)
        .map(|_| {
            let mut stream = connect(&server);
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n")
                .expect("sent");
            stream
        })
        .collect();
    let begun = Instant::now();
    assert_eq!(get(&server, "/healthz").0, "200");
    assert_eq!(get(&server, "/metrics").0, "200");
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
}

#[test]
fn a_head_that_is_too_long_is_not_taken() {
    let (server, _publish) = server(true);
    for (length, taken) in [(HEAD / 2, true), (HEAD + 1000, false)] {
        let mut stream = connect(&server);
        let request = format!("GET /healthz HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(length));
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        // Closed with bytes unread is closed by reset, as the case may be.
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(
            String::from_utf8_lossy(&answer).contains(" 200 "),
            taken,
            "{length} bytes"
        );
    }
    assert_eq!(get(&server, "/healthz").0, "200");
}

#[test]
fn an_address_in_use_is_tried_again_and_its_holder_named() {
    let (first, publish) = server(true);
    let (readiness, _) = parts(publish.subscribe());
    let listeners = SharedListeners::default();
    let second = serve(first.address(), HealthRoutes::Health(readiness), &listeners);
    let error = || listeners.status().remove(0).error;
    let deadline = Instant::now() + Duration::from_mins(1);
    let wait = |is_there: &dyn Fn() -> bool| {
        while !is_there() {
            assert!(Instant::now() < deadline, "{:?}", error());
            thread::sleep(Duration::from_millis(20));
        }
    };
    wait(&|| error().is_some());
    let holder = format!("(process {}) has the port", std::process::id());
    assert!(
        error().is_some_and(|error| error.ends_with(&holder)),
        "{:?}",
        error()
    );
    assert_eq!(get(&first, "/metrics").0, "200", "the first has it");
    drop(first);
    wait(&|| error().is_none());
    assert_eq!(
        get(&second, "/metrics").0,
        "404",
        "the second serves health checks alone"
    );
    let address = second.address();
    drop(second);
    assert!(
        Stream::connect(address).is_err(),
        "the thread still listens"
    );
}
