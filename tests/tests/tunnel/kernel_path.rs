//! Mode `kernel`: pods and nodes reach each other without the programs, on a kernel that refuses
//! them too.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Pair,
    load::rr::{Protocol, rr},
};

#[test]
fn pods_and_nodes_reach_each_other_without_the_programs() -> Result<()> {
    let pair = Pair::with_flags("kernelpath", &["--datapath=kernel"])?;
    let status = pair.sender.status()?;
    assert_eq!(status["mode"]["effective"], "kernel", "{status}");
    pair.near.ping(pair.far.ip())?;
    pair.far.ping(pair.near.ip())?;
    pair.net.a.sh(&format!("ping -n -c 3 -i 0.1 -W 2 {}", pair.far.ip()))?;
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let report = rr(&pair.near, &pair.far, pair.far.ip(), protocol, Duration::from_millis(200))?;
        ensure!(report.transactions > 0 && report.lost == 0, "{protocol:?}: {report:?}");
    }
    let device = &status["devices"][0];
    assert_eq!((&device["name"], &device["mtu"]), (&"flannel.1".into(), &1450.into()), "{device}");
    Ok(())
}
