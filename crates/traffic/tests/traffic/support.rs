//! A network namespace for one test, the task under test in it, and the tools.

use std::{
    fmt::Debug,
    io::{Write as _, stderr},
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use flannel_status::TrafficStatus;
use flannel_traffic::{
    Engine, FamilyScope, MasqueradeFamilies, Traffic, TrafficOptions, WantedTraffic,
};
use nix::sched::CloneFlags;
use tokio::time::{sleep, timeout};

pub(crate) use crate::shared::Namespace;
use crate::shared::in_namespace_with;

/// Runs `test` in a namespace with nothing in it. What it mounts is seen by no other thread either.
pub(crate) fn in_namespace(test: impl AsyncFnOnce(Namespace) + Send + 'static) {
    let set_up = || {
        run("mount --make-rprivate /");
        run("ip link set lo up");
    };
    in_namespace_with(CloneFlags::CLONE_NEWNS, set_up, test);
}

/// The iptables of this variant, for both families; `None`, said loudly, where it is not installed.
pub(crate) fn variant(name: &str) -> Option<()> {
    let there = |file: &str| Path::new("/usr/sbin").join(file).exists();
    if there(&format!("iptables-{name}")) && there(&format!("ip6tables-{name}")) {
        return Some(());
    }
    writeln!(stderr(), "NOT RUN: iptables-{name} is not installed").expect("stderr");
    None
}

/// Makes plain `iptables` this variant, for this thread and what it starts.
pub(crate) fn choose(variant: &str) {
    hide("/etc/alternatives");
    for base in ["iptables", "ip6tables"] {
        for verb in ["", "-save", "-restore"] {
            let link = format!("/etc/alternatives/{base}{verb}");
            symlink(format!("/usr/sbin/{base}-{variant}{verb}"), link).expect("a link");
        }
    }
}

/// Puts an empty directory in the place of this one, for this thread and what it starts.
pub(crate) fn hide(dir: &str) {
    run(&format!("mount -t tmpfs tmpfs {dir}"));
}

pub(crate) fn scope(network: &str, subnet: &str) -> FamilyScope {
    FamilyScope {
        network: network.parse().expect("a network"),
        subnet: subnet.parse().expect("a subnet"),
    }
}

pub(crate) fn v4() -> FamilyScope {
    scope("10.42.0.0/16", "10.42.1.0/24")
}

pub(crate) fn v6() -> FamilyScope {
    scope("fd00:10:244::/56", "fd00:10:244:1::/64")
}

pub(crate) fn wanted(scopes: &[FamilyScope]) -> WantedTraffic {
    WantedTraffic {
        scopes: scopes.to_vec(),
        former: Vec::new(),
    }
}

/// Everything there is, looked at often.
pub(crate) fn all() -> TrafficOptions {
    let resync = Duration::from_millis(300);
    TrafficOptions {
        masquerade: MasqueradeFamilies::BOTH,
        exempt: Vec::new(),
        forward: true,
        blackhole: true,
        random_fully: true,
        resync,
    }
}

/// The same with exempt destinations: prefixes that end within a byte, and single addresses.
pub(crate) fn exempt() -> TrafficOptions {
    let prefixes = [
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.0.2.0/25",
        "192.0.2.129/32",
        "2001:db8::/29",
        "2001:db8::9/128",
    ];
    TrafficOptions {
        exempt: prefixes
            .map(|prefix| prefix.parse().expect("a prefix"))
            .into(),
        ..all()
    }
}

impl Namespace {
    /// Starts the task and waits for its first look.
    pub(crate) async fn traffic(
        &self,
        engine: Option<Engine>,
        options: TrafficOptions,
        wanted: WantedTraffic,
    ) -> Traffic {
        let mut traffic = Traffic::start(self.netlink.clone(), engine, options, wanted)
            .await
            .expect("the tools");
        wait_tried(&mut traffic).await;
        traffic
    }
}

/// Waits until what is wanted was tried.
pub(crate) async fn wait_tried(traffic: &mut Traffic) -> TrafficStatus {
    while !traffic.is_settled() {
        timeout(Duration::from_secs(20), traffic.changed())
            .await
            .expect("a look");
    }
    traffic.status()
}

/// Waits until something of the status is so.
pub(crate) async fn until(
    traffic: &mut Traffic,
    so: impl Fn(&TrafficStatus) -> bool,
) -> TrafficStatus {
    while !so(&traffic.status()) {
        timeout(Duration::from_secs(20), traffic.changed())
            .await
            .expect("a change of the status");
    }
    traffic.status()
}

/// Waits until `read` returns `expected`: a dropped worker may be in the middle of a look, and its
/// successor repairs what it leaves.
pub(crate) async fn becomes<T: PartialEq + Debug>(read: impl Fn() -> T, expected: T) {
    let start = Instant::now();
    while read() != expected && start.elapsed() < Duration::from_secs(20) {
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(read(), expected);
}

/// Runs a command given as one line in the calling thread's namespaces; what it printed. Panics
/// when it fails.
pub(crate) fn run(line: &str) -> String {
    fed(line, "")
}

/// The same, with text on its standard input.
pub(crate) fn fed(line: &str, input: &str) -> String {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a command"));
    command
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input.as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("its end");
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}
