//! The agent restarts, and no packet notices.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_host::family::Family;
use flannel_tests::{
    host::joined,
    load::rr::{Protocol, rr},
};
use flannel_traffic::Engine;

use super::support::{Cluster, of_a, outside, seen};

/// New flows and an old one of each family, out of a pod, while the agent is stopped, killed and
/// started.
fn under_load(name: &str, engine: Engine) -> Result<()> {
    let cluster = Cluster::new(name, engine, &["--ip-masq", "--iptables-resync=1"])?;
    let done = Arc::new(AtomicBool::new(false));
    let (pod, router, over) = (
        cluster.near.clone(),
        cluster.net.r.clone(),
        Arc::clone(&done),
    );
    let new_flows = thread::spawn(move || -> Result<u32> {
        let mut flows = 0;
        while !over.load(Ordering::Relaxed) {
            for family in Family::BOTH {
                let from = seen(&pod, None, &router, outside(family))?;
                ensure!(
                    from == of_a(family),
                    "after {flows} flows one came as {from}"
                );
                flows += 1;
            }
        }
        Ok(flows)
    });
    let old_flows = Family::BOTH.map(|family| {
        let (pod, router) = (cluster.near.clone(), cluster.net.r.clone());
        thread::spawn(move || {
            rr(
                &pod,
                &router,
                outside(family),
                Protocol::Tcp,
                Duration::from_secs(10),
            )
        })
    });
    for round in 0..3 {
        if round == 1 {
            cluster.a.kill9()?;
        } else {
            cluster.a.sigterm_and_wait()?;
        }
        cluster.a.restart()?;
        cluster.a.wait_ready()?;
    }
    for (family, old_flow) in Family::BOTH.into_iter().zip(old_flows) {
        let report = joined(old_flow).with_context(|| format!("the {family} connection"))?;
        println!(
            "{} transactions of the old {family} connection",
            report.transactions
        );
    }
    done.store(true, Ordering::Relaxed);
    let flows = joined(new_flows).context("a new flow")?;
    println!("{flows} new flows");
    let status = cluster.a.status()?;
    assert_eq!(status["traffic"]["repairs"], 0, "{status}");
    Ok(())
}

#[test]
fn a_restart_under_load_drops_nothing_with_iptables() -> Result<()> {
    under_load("restipt", Engine::Iptables)
}

#[test]
fn a_restart_under_load_drops_nothing_with_nftables() -> Result<()> {
    under_load("restnft", Engine::Nftables)
}
