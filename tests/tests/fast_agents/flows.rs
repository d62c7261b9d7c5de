//! Flows are learned and replayed.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    fast::fast_pair,
    load::rr::{Protocol, rr},
};

#[test]
fn after_the_first_packets_flows_are_replayed_both_ways() -> Result<()> {
    let pair = fast_pair("fa-flows", &[])?;
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let before = [pair.sender.replayed()?, pair.receiver.replayed()?];
        let report = rr(&pair.near, &pair.far, pair.far.ip(), protocol, Duration::from_secs(3))?;
        ensure!(report.lost == 0, "{report:?}");
        for (agent, before) in [&pair.sender, &pair.receiver].into_iter().zip(before) {
            let (replayed, packets) = (agent.replayed()? - before, report.transactions * 2);
            let stats = || agent.cli(&["maps", "dump", "stats"]);
            ensure!(replayed * 100 >= packets * 95, "{protocol:?}: {replayed} of {packets}:\n{}", stats()?.stdout);
        }
    }
    Ok(())
}
