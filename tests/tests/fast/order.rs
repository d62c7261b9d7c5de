//! The order of a flow's packets: one that takes the kernel's way, to refresh what is known, may be
//! overtaken by replayed ones behind it.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{Pair, fast::fast_pair};

const PPS: u32 = 10_000;
const LENGTH: Duration = Duration::from_secs(10);

/// Packets of known flows that were left to the kernel, so that it shows again what it does.
fn refreshes(pair: &Pair) -> Result<u64> {
    let [sender, receiver] = [&pair.sender, &pair.receiver];
    Ok(
        sender.counted("from_pod", "refreshing")?
            + receiver.counted("from_tunnel", "refreshing")?,
    )
}

#[test]
fn packets_overtake_none_but_those_of_a_refresh() -> Result<()> {
    let pair = fast_pair("order", &[])?;
    // Packets cross the cable in batches then, as through a NIC.
    for agent in [&pair.sender, &pair.receiver] {
        agent.node().sh("ethtool -K eth0 gro on")?;
    }
    for mode in ["kernel", "fast"] {
        pair.set_mode(mode)?;
        let before = (refreshes(&pair)?, pair.replayed()?);
        let report = pair.stream(PPS, LENGTH)?.wait()?;
        let after = (refreshes(&pair)?, pair.replayed()?);
        let (refreshes, replayed) = (
            after.0 - before.0,
            [after.1[0] - before.1[0], after.1[1] - before.1[1]],
        );
        println!("mode {mode}: {refreshes} refreshes, {replayed:?} replayed, {report:?}");
        report.expect_complete()?;
        ensure!(
            report.reordered <= refreshes,
            "{refreshes} refreshes, {report:?}"
        );
        let least = if mode == "fast" {
            report.sent * 9 / 10
        } else {
            0
        };
        ensure!(
            replayed.iter().all(|replayed| *replayed >= least),
            "{replayed:?} of {}",
            report.sent
        );
    }
    Ok(())
}
