//! Tests of the choice of the displaced connection, and that it is closed by then.

use std::{future::pending, sync::atomic::AtomicUsize};

use super::*;

fn remote(last: u8) -> Origin {
    Origin::Remote([10, 244, 1, last].into())
}

/// Of connections and whether each has asked.
fn displaced(newcomer: Origin, open: &[(Origin, bool)]) -> Option<usize> {
    let sources: Vec<_> = open.iter().map(|(source, _)| *source).collect();
    displaced_by(newcomer, &sources, |index| open[index].1)
}

fn idle(source: Origin, count: usize) -> Vec<(Origin, bool)> {
    vec![(source, false); count]
}

#[test]
fn sources_are_hosts() {
    let of = |peer: &str, own: &str| {
        Origin::of(
            peer.parse().expect("an address"),
            own.parse().expect("an address"),
        )
    };
    for local in [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
    ] {
        assert_eq!(of(local.0, local.1), Origin::Local, "{local:?}");
    }
    assert_eq!(
        of("192.0.2.1", "192.0.2.1"),
        Origin::Local,
        "a kubelet that probes the node's address"
    );
    assert_eq!(of("::ffff:192.0.2.1", "::ffff:192.0.2.1"), Origin::Local);
    assert_eq!(
        of("10.244.1.2", "127.0.0.1"),
        remote(2),
        "let in by route_localnet"
    );
    assert_eq!(
        of("::ffff:10.244.1.2", "::ffff:192.0.2.1"),
        remote(2),
        "one host, however it is written"
    );
    assert_eq!(
        of("2001:db8::1", "2001:db8::9"),
        of("2001:db8::2", "2001:db8::9"),
        "one host has all of a /64"
    );
    assert_ne!(
        of("2001:db8::1", "2001:db8::9"),
        of("2001:db8:0:1::1", "2001:db8::9")
    );
}

#[test]
fn below_the_limits_no_connection_is_displaced() {
    let mut open = idle(Origin::Local, LOCAL - 1);
    for source in 0..8 {
        open.extend(idle(remote(source), PER_SOURCE - 1));
    }
    assert_eq!(displaced(Origin::Local, &open), None);
    for source in 0..=8 {
        assert_eq!(displaced(remote(source), &open), None);
    }
}

#[test]
fn a_source_at_its_limit_displaces_its_own_oldest() {
    let open = [idle(remote(1), 3), idle(remote(2), PER_SOURCE)].concat();
    assert_eq!(displaced(remote(2), &open), Some(3), "its oldest");
    assert_eq!(displaced(remote(1), &open), None);
}

#[test]
fn all_others_together_never_displace_this_node() {
    let mut open = idle(Origin::Local, 2);
    for source in 0..=8 {
        open.extend(idle(remote(source), PER_SOURCE));
    }
    open.truncate(2 + REMOTE);
    assert_eq!(
        displaced(remote(100), &open),
        Some(2),
        "the oldest of a remote source"
    );
    assert_eq!(displaced(Origin::Local, &open), None);
}

#[test]
fn this_node_displaces_no_other() {
    let open = [idle(remote(1), 1), idle(Origin::Local, LOCAL)].concat();
    assert_eq!(displaced(Origin::Local, &open), Some(1));
}

#[test]
fn those_that_asked_are_displaced_last() {
    let mut open = [
        vec![(Origin::Local, true); LOCAL - 1],
        idle(Origin::Local, 1),
    ]
    .concat();
    assert_eq!(displaced(Origin::Local, &open), Some(LOCAL - 1));
    open[LOCAL - 1].1 = true;
    assert_eq!(displaced(Origin::Local, &open), Some(0));
}

/// Adds one to a count for as long as it lives, as a descriptor would be open.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn no_more_are_open_than_the_limit_at_any_time() {
    let (open, displaced) = (Arc::new(AtomicUsize::new(0)), Count::default());
    let mut connections = Connections::new(displaced.clone());
    for _ in 0..10 * LOCAL {
        let count = Arc::clone(&open);
        let silent = |_| async move {
            let _descriptor = Open::new(&count);
            pending::<()>().await;
        };
        connections.admit(Origin::Local, silent).await;
        assert!(open.load(Ordering::Relaxed) <= LOCAL);
    }
    assert_eq!(
        (open.load(Ordering::Relaxed), displaced.get()),
        (LOCAL, 9 * u64::try_from(LOCAL).expect("few"))
    );
}
