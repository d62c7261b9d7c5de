//! The settings of conntrack mode `fast` depends on.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Node, eventually,
    fast::{FLAGS, fast_pair},
    load::rr::{Protocol, rr},
};

const SWITCHES: [&str; 2] = ["nf_conntrack_tcp_be_liberal", "nf_conntrack_tcp_ignore_invalid_rst"];

fn switches(node: &Node) -> Result<Vec<String>> {
    let value = |name: &&str| Ok(node.sh(&format!("sysctl -n net.netfilter.{name}"))?.stdout.trim().to_owned());
    SWITCHES.iter().map(value).collect()
}

#[test]
fn the_agent_makes_conntrack_liberal_and_keeps_it_so() -> Result<()> {
    let pair = fast_pair("fa-liberal", &[])?;
    let node = pair.sender.node();
    assert_eq!(switches(node)?, ["1", "1"]);
    for name in SWITCHES {
        node.sh(&format!("sysctl -qw net.netfilter.{name}=0"))?;
        eventually(&format!("{name}=1"), Duration::from_secs(10), || {
            let switches = switches(node)?;
            ensure!(switches == ["1", "1"], "{switches:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Opted out: the host's settings stay, TCP takes the kernel's path and `status` says why; UDP is replayed.
#[test]
fn without_leave_to_change_them_tcp_takes_the_kernels_path() -> Result<()> {
    let pair = fast_pair("fa-strict", &["--conntrack-liberal=false"])?;
    assert_eq!(switches(pair.sender.node())?, ["0", "0"]);
    let reason = "net.netfilter.nf_conntrack_tcp_be_liberal is not 1";
    assert_eq!(pair.sender.status()?["fast"]["tcp_reason"], reason);
    for (protocol, replays) in [(Protocol::Tcp, false), (Protocol::Udp, true)] {
        let before = pair.sender.replayed()?;
        let report = rr(&pair.near, &pair.far, pair.far.ip(), protocol, Duration::from_secs(1))?;
        let replayed = pair.sender.replayed()? - before;
        ensure!(replays == (replayed > report.transactions), "{protocol:?}: {replayed}, {report:?}");
    }
    for name in SWITCHES {
        pair.sender.node().sh(&format!("sysctl -qw net.netfilter.{name}=1"))?;
    }
    eventually("TCP once the host allows it", Duration::from_secs(10), || {
        let reason = pair.sender.status()?["fast"]["tcp_reason"].clone();
        ensure!(reason.is_null(), "{reason}");
        Ok(())
    })
}

#[test]
fn other_modes_change_no_setting_of_the_host() -> Result<()> {
    let pair = flannel_tests::Pair::with_flags("fa-others", &FLAGS[1..])?;
    assert_eq!(switches(pair.sender.node())?, ["0", "0"]);
    Ok(())
}
