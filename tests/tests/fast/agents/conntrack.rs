//! The settings of conntrack mode `fast` depends on.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Node, eventually,
    fast::{FLAGS, fast_pair},
    load::rr::{Protocol, rr},
};

const SWITCHES: [&str; 2] = ["nf_conntrack_tcp_be_liberal", "nf_conntrack_tcp_ignore_invalid_rst"];
const TIMEOUTS: [&str; 2] = ["nf_conntrack_tcp_timeout_unacknowledged", "nf_conntrack_tcp_timeout_max_retrans"];
const ESTABLISHED: &str = "nf_conntrack_tcp_timeout_established";
/// The kernel's own values of all four, and what the agent makes of them.
pub(crate) const FRESH: [u32; 4] = [0, 0, 300, 300];
pub(crate) const SET: [u32; 4] = [1, 1, 432_000, 432_000];

/// The switches, then the timeouts.
pub(crate) fn sysctls(node: &Node) -> Result<Vec<u32>> {
    let value = |name: &&str| Ok(node.sh(&format!("sysctl -n net.netfilter.{name}"))?.stdout.trim().parse()?);
    SWITCHES.iter().chain(&TIMEOUTS).map(value).collect()
}

pub(crate) fn set(node: &Node, name: &str, value: u32) -> Result<()> {
    node.sh(&format!("sysctl -qw net.netfilter.{name}={value}")).map(drop)
}

/// The kernel's own values.
pub(crate) fn set_fresh(node: &Node) -> Result<()> {
    SWITCHES.iter().chain(&TIMEOUTS).zip(FRESH).try_for_each(|(name, value)| set(node, name, value))
}

/// The agent looks once a second.
fn wait_sysctls(node: &Node, expected: [u32; 4]) -> Result<()> {
    eventually(&format!("{expected:?}"), Duration::from_secs(3), || {
        let now = sysctls(node)?;
        ensure!(now == expected, "{now:?}");
        Ok(())
    })
}

#[test]
fn the_agent_makes_conntrack_liberal_and_keeps_it_so() -> Result<()> {
    let pair = fast_pair("fa-liberal", &[])?;
    let node = pair.sender.node();
    assert_eq!(sysctls(node)?, SET);
    for (name, fresh) in SWITCHES.iter().chain(&TIMEOUTS).zip(FRESH) {
        set(node, name, fresh)?;
        wait_sysctls(node, SET)?;
    }
    // Those of data that is not acknowledged follow it upwards; downwards it is the bound of all
    // three.
    set(node, ESTABLISHED, 500_000)?;
    wait_sysctls(node, [1, 1, 500_000, 500_000])?;
    set(node, ESTABLISHED, 3600)?;
    set(node, SWITCHES[0], 0)?;
    wait_sysctls(node, [1, 1, 500_000, 500_000])?;
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
    expect(Some("net.netfilter.nf_conntrack_tcp_be_liberal is not 1"))?;
    for (protocol, replays) in [(Protocol::Tcp, false), (Protocol::Udp, true)] {
        let before = pair.sender.replayed()?;
        let report = rr(&pair.near, &pair.far, pair.far.ip(), protocol, Duration::from_secs(1))?;
        let replayed = pair.sender.replayed()? - before;
        ensure!(replays == (replayed > report.transactions), "{protocol:?}: {replayed}, {report:?}");
    }
    for name in SWITCHES {
        set(node, name, 1)?;
    }
    for name in TIMEOUTS {
        expect(Some(&format!(
            "net.netfilter.{name} is 300, less than the 432000 of net.netfilter.nf_conntrack_tcp_timeout_established"
        )))?;
        let before = pair.sender.replayed()?;
        let report = rr(&pair.near, &pair.far, pair.far.ip(), Protocol::Tcp, Duration::from_secs(1))?;
        let replayed = pair.sender.replayed()? - before;
        ensure!(replayed < report.transactions, "TCP is learned while {name} is 300: {replayed}, {report:?}");
        set(node, name, 432_000)?;
    }
    expect(None)?;
    ensure!(pair.sender.status()?["sysctls"] == serde_json::json!([]), "the agent set none");
    Ok(())
}

#[test]
fn other_modes_change_no_setting_of_the_host() -> Result<()> {
    let pair = flannel_tests::Pair::with_flags("fa-others", &FLAGS[1..])?;
    assert_eq!(sysctls(pair.sender.node())?, FRESH);
    Ok(())
}
