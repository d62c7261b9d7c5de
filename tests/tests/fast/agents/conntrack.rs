//! The settings of conntrack mode `fast` depends on.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Node, eventually,
    fast::{FLAGS, fast_pair},
    load::rr::{Protocol, rr},
};

const SWITCHES: [&str; 2] = [
    "nf_conntrack_tcp_be_liberal",
    "nf_conntrack_tcp_ignore_invalid_rst",
];
const TIMEOUTS: [&str; 2] = [
    "nf_conntrack_tcp_timeout_unacknowledged",
    "nf_conntrack_tcp_timeout_max_retrans",
];
const ESTABLISHED: &str = "nf_conntrack_tcp_timeout_established";
/// The kernel's own values of the timeouts, and what the agent makes of them.
pub(crate) const FRESH: [u32; 2] = [300; 2];
pub(crate) const SET: [u32; 2] = [432_000; 2];

/// Timeouts of UDP, which have a margin of three seconds in mode `fast`.
const UDP_FRESH: [(&str, u32); 2] = [
    ("nf_conntrack_udp_timeout", 30),
    ("nf_conntrack_udp_timeout_stream", 120),
];

/// The timeouts.
pub(crate) fn sysctls(node: &Node) -> Result<Vec<u32>> {
    let value = |name: &&str| {
        Ok(node
            .sh(&format!("sysctl -n net.netfilter.{name}"))?
            .stdout
            .trim()
            .parse()?)
    };
    TIMEOUTS.iter().map(value).collect()
}

pub(crate) fn set(node: &Node, name: &str, value: u32) -> Result<()> {
    node.sh(&format!("sysctl -qw net.netfilter.{name}={value}"))
        .map(drop)
}

/// The kernel's own values.
pub(crate) fn set_fresh(node: &Node) -> Result<()> {
    TIMEOUTS
        .iter()
        .zip(FRESH)
        .try_for_each(|(name, value)| set(node, name, value))?;
    UDP_FRESH
        .iter()
        .try_for_each(|(name, value)| set(node, name, *value))
}

/// The agent looks once a second.
fn wait_sysctls(node: &Node, expected: [u32; 2]) -> Result<()> {
    eventually(&format!("{expected:?}"), Duration::from_secs(3), || {
        let now = sysctls(node)?;
        ensure!(now == expected, "{now:?}");
        Ok(())
    })
}

#[test]
fn the_agent_lengthens_timeouts_and_keeps_them_so() -> Result<()> {
    let pair = fast_pair("fa-liberal", &[])?;
    let node = pair.sender.node();
    assert_eq!(sysctls(node)?, SET);
    for (name, fresh) in TIMEOUTS.iter().zip(FRESH) {
        set(node, name, fresh)?;
        wait_sysctls(node, SET)?;
    }
    // Those of data that is not acknowledged follow it upwards; downwards it is the bound of all
    // three.
    set(node, ESTABLISHED, 500_000)?;
    wait_sysctls(node, [500_000; 2])?;
    set(node, ESTABLISHED, 3600)?;
    set(node, TIMEOUTS[0], 3600)?;
    wait_sysctls(node, [3600, 500_000])?;
    ensure!(pair.sender.status()?["fast"]["tcp_reason"].is_null());
    Ok(())
}

/// Opted out: the host's settings stay, TCP takes the kernel's path and `status` says why; UDP is
/// replayed.
#[test]
fn without_leave_to_change_them_tcp_takes_the_kernels_path() -> Result<()> {
    let pair = fast_pair("fa-strict", &["--conntrack-liberal=false"])?;
    let node = pair.sender.node();
    assert_eq!(sysctls(node)?, FRESH);
    let expect = |expected: Option<&str>| {
        eventually("the reason in status", Duration::from_secs(3), || {
            let reason = pair.sender.status()?["fast"]["tcp_reason"].clone();
            ensure!(reason.as_str() == expected, "{reason}");
            Ok(())
        })
    };
    expect(Some(
        "net.netfilter.nf_conntrack_tcp_timeout_unacknowledged is 300, less than the 432000 of \
                 net.netfilter.nf_conntrack_tcp_timeout_established",
    ))?;
    for (protocol, replays) in [(Protocol::Tcp, false), (Protocol::Udp, true)] {
        let before = pair.sender.replayed()?;
        let report = rr(
            &pair.near,
            &pair.far,
            pair.far.ip(),
            protocol,
            Duration::from_secs(1),
        )?;
        let replayed = pair.sender.replayed()? - before;
        ensure!(
            replays == (replayed > report.transactions),
            "{protocol:?}: {replayed}, {report:?}"
        );
    }
    for name in TIMEOUTS {
        expect(Some(&format!(
            "net.netfilter.{name} is 300, less than the 432000 of \
             net.netfilter.nf_conntrack_tcp_timeout_established"
        )))?;
        let before = pair.sender.replayed()?;
        let report = rr(
            &pair.near,
            &pair.far,
            pair.far.ip(),
            Protocol::Tcp,
            Duration::from_secs(1),
        )?;
        let replayed = pair.sender.replayed()? - before;
        ensure!(
            replayed < report.transactions,
            "TCP is learned while {name} is 300: {replayed}, {report:?}"
        );
        set(node, name, 432_000)?;
    }
    expect(None)?;
    ensure!(
        pair.sender.status()?["sysctls"] == serde_json::json!([]),
        "the agent set none"
    );
    Ok(())
}

/// Conntrack judges connections that are not replayed as ever: the agent ends the checks of windows
/// of single connections, not those of the host.
#[test]
fn the_hosts_checks_of_windows_stay_as_they_are() -> Result<()> {
    let pair = fast_pair("fa-windows", &[])?;
    let node = pair.sender.node();
    let switches = || -> Result<Vec<String>> {
        SWITCHES
            .iter()
            .map(|name| Ok(node.sh(&format!("sysctl -n net.netfilter.{name}"))?.stdout))
            .collect()
    };
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    assert_eq!(switches()?, ["0\n"; 2]);
    for name in SWITCHES {
        set(node, name, 1)?;
    }
    pair.talk_until_replayed(&mut talk, 500)?;
    assert_eq!(switches()?, ["1\n"; 2], "the host's own choice");
    Ok(())
}

#[test]
fn other_modes_change_no_setting_of_the_host() -> Result<()> {
    let pair = flannel_tests::Pair::with_flags("fa-others", &FLAGS[1..])?;
    assert_eq!(sysctls(pair.sender.node())?, FRESH);
    Ok(())
}
