//! The agent restarts, and no packet notices.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    host::joined,
    load::rr::{Protocol, rr},
};

use crate::support::{A, Cluster, IPTABLES, NFTABLES, OUTSIDE, seen};

/// New flows and an old one, out of a pod, while the agent is stopped, killed and started.
fn under_load(name: &str, config: &str) -> Result<()> {
    let cluster = Cluster::new(name, config, &["--ip-masq", "--iptables-resync=1"])?;
    let done = Arc::new(AtomicBool::new(false));
    let (pod, outside, over) = (cluster.near.clone(), cluster.net.r.clone(), Arc::clone(&done));
    let new_flows = thread::spawn(move || -> Result<u32> {
        let mut flows = 0;
        while !over.load(Ordering::Relaxed) {
            let from = seen(&pod, None, &outside, OUTSIDE.into())?;
            ensure!(from == IpAddr::V4(A), "after {flows} flows one came as {from}");
            flows += 1;
        }
        Ok(flows)
    });
    let (pod, outside) = (cluster.near.clone(), cluster.net.r.clone());
    let old_flow = thread::spawn(move || rr(&pod, &outside, OUTSIDE.into(), Protocol::Tcp, Duration::from_secs(10)));
    for round in 0..3 {
        if round == 1 {
            cluster.a.kill9()?;
        } else {
            cluster.a.sigterm_and_wait()?;
        }
        cluster.a.restart()?;
        cluster.a.wait_ready()?;
    }
    let report = joined(old_flow).context("the connection")?;
    done.store(true, Ordering::Relaxed);
    let flows = joined(new_flows).context("a new flow")?;
    println!("{flows} new flows, {} transactions of the old one", report.transactions);
    let status = cluster.a.status()?;
    assert_eq!(status["traffic"]["repairs"], 0, "{status}");
    Ok(())
}

#[test]
fn a_restart_under_load_drops_nothing_with_iptables() -> Result<()> {
    under_load("restipt", IPTABLES)
}

#[test]
fn a_restart_under_load_drops_nothing_with_nftables() -> Result<()> {
    under_load("restnft", NFTABLES)
}
