//! `cleanup` leaves a node of either family and backend as it was before.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    StockEnd, StockNode, TwoNodes,
    agent::snapshot::Snapshot,
    cluster::{self, topology::Stack},
    eventually,
};

use super::{DIRECT_ROUTING, HOST_GW};

fn nothing_is_left(
    name: &str,
    backend: &str,
    end: fn(u8, &str) -> StockEnd,
    removed: &[&str],
) -> Result<()> {
    let pair = TwoNodes::with(name, Stack::Dual, &cluster::config(Stack::Dual, backend))?;
    cluster::pair::wait_dad(&pair.a)?;
    pair.a.sh("ip route add 10.9.0.0/16 via 192.168.1.12")?;
    pair.a
        .sh("ip -6 route add fd00:9::/48 via 2001:db8:1::12")?;
    let before = Snapshot::of(&pair.a)?;
    let both = |number, v4: &str, v6: &str| StockNode {
        v4: Some(end(number, v4)),
        v6: Some(end(number, v6)),
    };
    both(9, "192.168.1.99", "2001:db8:1::99").put(&pair.etcd)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    agent.wait_peers(2)?;
    ensure!(
        !before.changes(&Snapshot::of(&pair.a)?).is_empty(),
        "there is something to remove"
    );
    agent.sigterm_and_wait()?;
    let text = agent.cli(&["cleanup"])?.stdout;
    for line in removed {
        ensure!(text.contains(line), "{line:?} in:\n{text}");
    }
    eventually("a clean node", Duration::from_secs(3), || {
        let changes = before.changes(&Snapshot::of(&pair.a)?);
        ensure!(changes.is_empty(), "{changes}");
        Ok(())
    })
}

#[test]
fn nothing_is_left_of_tunnels_and_direct_routes() -> Result<()> {
    let end = |number, address: &str| {
        StockEnd::vxlan(
            number,
            address,
            if address.contains(':') {
                "02:00:00:00:06:09"
            } else {
                "02:00:00:00:04:09"
            },
        )
    };
    let removed = [
        "remove the route 10.244.9.0/24 via 192.168.1.99",
        "remove the route fd00:10:244:9::/64 via 2001:db8:1::99",
        "remove the device flannel.1 and all on it",
        "remove the device flannel-v6.1 and all on it",
    ];
    nothing_is_left("clean6", DIRECT_ROUTING, end, &removed)
}

#[test]
fn nothing_is_left_of_routes_alone() -> Result<()> {
    let removed = [
        "remove the route 10.244.9.0/24 via 192.168.1.99",
        "remove the route fd00:10:244:9::/64 via 2001:db8:1::99",
    ];
    nothing_is_left("cleangw", HOST_GW, StockEnd::host_gw, &removed)
}
