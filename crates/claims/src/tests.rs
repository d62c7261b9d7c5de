use std::process;

use tokio::net::UnixStream;

use super::*;

/// An agent with this word in its paths.
fn identity(word: &str) -> Identity {
    Identity {
        pid: process::id(),
        state_dir: format!("/run/{word}"),
        pin_root: format!("/sys/fs/bpf/{word}"),
    }
}

/// A device that no other process claims.
fn device(word: &str) -> Claim {
    Claim::Device(format!("test-{}-{word}", process::id()))
}

/// A pod network that no other process claims, with that prefix length.
fn network(word: u8, length: u8) -> Claim {
    let [.., high, low] = process::id().to_be_bytes();
    let address = [
        0xfd00,
        u16::from_be_bytes([high, low]),
        u16::from(word) << 8,
        0,
        0,
        0,
        0,
        0,
    ];
    let network = ipnet::Ipv6Net::new(address.into(), length)
        .expect("a length")
        .trunc();
    Claim::Network(network.into())
}

async fn take(word: &str, claims: &[Claim]) -> Result<Claims, Taken> {
    Claims::take(&identity(word), claims, |_| {}).await
}

#[tokio::test]
async fn a_second_agent_is_refused_and_learns_who_the_first_is() {
    let _first = take("first", &[device("second"), network(1, 48)])
        .await
        .expect("it is free");
    let refused = take("second", &[network(2, 48), device("second")])
        .await
        .expect_err("the first runs")
        .to_string();
    for part in [
        &*format!("process {}", process::id()),
        "/run/first",
        "/sys/fs/bpf/first",
        "the tunnel device test-",
    ] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    let _free = take("third", &[network(2, 48)])
        .await
        .expect("a refused agent keeps no claim");
}

#[tokio::test]
async fn networks_that_overlap_have_one_owner() {
    let _first = take("first", &[network(16, 48)]).await.expect("it is free");
    let refused = take("second", &[network(16, 40)])
        .await
        .expect_err("the first has a part of it")
        .to_string();
    assert!(
        refused.contains("/run/first") && refused.contains("the pod network"),
        "{refused}"
    );
    let _other = take("other", &[network(32, 48)])
        .await
        .expect("no address in common");
}

#[tokio::test]
async fn a_claim_goes_over_as_soon_as_the_first_agent_ends() {
    let claims = [device("handover")];
    let first = take("first", &claims).await.expect("it is free");
    let mut calls = 0;
    let identity = identity("second");
    let second = Claims::take(&identity, &claims, |_| calls += 1);
    let end = async {
        sleep(PERIOD * 4).await;
        drop(first);
    };
    let begun = Instant::now();
    let (second, ()) = tokio::join!(second, end);
    let _second = second.expect("the first has ended");
    assert!(begun.elapsed() < HANDOVER, "{:?}", begun.elapsed());
    assert_eq!(calls, 1, "the reason to wait is said once");
}

#[tokio::test]
async fn an_agent_that_hangs_still_owns_what_it_owns() {
    let claim = device("hangs");
    let _silent = bind(&claim.name()).expect("it is free");
    let refused = take("second", &[claim])
        .await
        .expect_err("the first was stopped")
        .to_string();
    assert!(refused.contains("does not answer"), "{refused}");
}

#[tokio::test]
async fn a_claim_of_another_program_that_is_gone_is_free() {
    let claim = device("gone");
    drop(bind(&claim.name()).expect("it is free"));
    assert!(
        UnixStream::connect(format!("\0{}", claim.name()))
            .await
            .is_err()
    );
    let _taken = take("next", &[claim]).await.expect("free");
}

#[test]
fn a_pin_root_is_the_same_by_each_path_to_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let other = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &other).expect("a link");
    let [one, same] = [dir.path(), &other].map(|dir| Claim::pins(&dir.join("flannel")).name());
    assert_eq!(one, same);
    assert_ne!(one, Claim::pins(&dir.path().join("flannel2")).name());
}
