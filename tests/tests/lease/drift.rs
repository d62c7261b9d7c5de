//! Foreign changes to our objects, which are repaired, and foreign objects, which stay unchanged.

use std::{thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, StockNode, TunnelState, TwoNodes, agent::snapshot::Snapshot, cluster::VXLAN, eventually,
    kernel::hooks,
};

/// The limit for repairs. Events announce foreign changes; the full resync runs only every 30 s.
const SECONDS: Duration = Duration::from_secs(10);

fn node_with_a_peer(name: &str) -> Result<(TwoNodes, Agent)> {
    let pair = TwoNodes::new(name, VXLAN)?;
    let own = StockNode::vxlan(85, "192.168.1.11", "02:00:00:00:00:05");
    pair.etcd.put(&own.key(), &own.value(), None)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    StockNode::vxlan(9, "192.168.1.99", "02:00:00:00:00:09").put(&pair.etcd)?;
    agent.wait_peers(1)?;
    Ok((pair, agent))
}

fn come_back(changes: &[&str]) -> Result<()> {
    let (pair, agent) = node_with_a_peer("drift")?;
    pair.a
        .expect_repairs(changes, || TunnelState::of(&pair.a))?;
    agent.wait_ready_is(true)?;
    Ok(())
}

#[test]
fn deleted_objects_come_back_within_seconds() -> Result<()> {
    come_back(&[
        "ip route del 10.244.9.0/24",
        "ip neigh del 10.244.9.0 dev flannel.1",
        "bridge fdb del 02:00:00:00:00:09 dev flannel.1",
        "ip address del 10.244.85.0/32 dev flannel.1",
        "ip link set flannel.1 down",
    ])
}

#[test]
fn changed_objects_are_repaired_within_seconds() -> Result<()> {
    come_back(&[
        "ip route replace 10.244.9.0/24 via 192.168.1.12",
        "ip route replace blackhole 10.244.9.0/24",
        "ip neigh replace 10.244.9.0 lladdr 02:00:00:00:00:66 nud permanent dev flannel.1",
        "bridge fdb replace 02:00:00:00:00:09 dst 192.168.1.66 self permanent dev flannel.1",
    ])
}

/// Entries that an earlier run or a mistaken user left on our device would misdirect packets.
#[test]
fn stale_entries_of_ours_on_the_tunnel_device_are_removed() -> Result<()> {
    come_back(&[
        "ip route add 10.244.33.0/24 via 10.244.33.0 dev flannel.1 onlink",
        "ip neigh add 10.244.33.0 lladdr 02:00:00:00:00:33 nud permanent dev flannel.1",
        "bridge fdb add 02:00:00:00:00:33 dst 192.168.1.33 self permanent dev flannel.1",
        "ip address add 10.244.33.0/32 dev flannel.1",
    ])
}

/// The device is recreated with the address that the peers know.
#[test]
fn a_deleted_device_comes_back_with_everything_on_it() -> Result<()> {
    let (pair, agent) = node_with_a_peer("device")?;
    let (wanted, device) = (TunnelState::of(&pair.a)?, agent.status()?["device"].clone());
    pair.a.sh("ip link delete flannel.1")?;
    eventually("the device", SECONDS, || {
        let left = wanted.changes(&TunnelState::of(&pair.a)?);
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })?;
    let again = agent.wait_ready_is(true)?["device"].clone();
    assert_eq!(
        (&again["mac"], &again["mtu"]),
        (&device["mac"], &device["mtu"])
    );
    assert_ne!(again["index"], device["index"], "another device");
    Ok(())
}

#[test]
fn a_changed_mtu_or_mac_of_the_device_is_repaired() -> Result<()> {
    let (pair, _agent) = node_with_a_peer("mtu")?;
    let shape = || -> Result<(String, String)> {
        let read = |name| {
            std::fs::read_to_string(
                pair.a
                    .outside_path(format!("/sys/class/net/flannel.1/{name}")),
            )
        };
        Ok((read("mtu")?, read("address")?))
    };
    let changes = [
        "ip link set flannel.1 mtu 1300",
        "ip link set flannel.1 address 02:00:00:00:00:77",
    ];
    pair.a.expect_repairs(&changes, shape)
}

/// The programs are desired state too.
#[test]
fn detached_programs_come_back() -> Result<()> {
    if hooks::lacks_tcx("TCX links whose pins are gone") {
        return Ok(());
    }
    let (pair, agent) = node_with_a_peer("programs")?;
    let attached = |pair: &TwoNodes| -> Result<Vec<String>> {
        Ok(Snapshot::of(&pair.a)?
            .section("tcx")
            .map(str::to_owned)
            .collect())
    };
    let wanted = attached(&pair)?;
    assert_eq!(wanted.len(), 4, "{wanted:?}");
    let index = agent.status()?["device"]["index"]
        .as_u64()
        .context("an index")?;
    std::fs::remove_file(
        pair.a
            .outside_path(format!("/sys/fs/bpf/flannel/v2/links/to_tunnel-{index}")),
    )?;
    // Nothing announces this, so it is found by the look at everything.
    eventually("the program", Duration::from_secs(40), || {
        let now = attached(&pair)?;
        ensure!(now == wanted, "{now:?}");
        Ok(())
    })
}

#[test]
fn objects_of_others_stay_untouched() -> Result<()> {
    let (pair, agent) = node_with_a_peer("foreign")?;
    for foreign in [
        "ip address add 192.168.77.1/32 dev flannel.1",
        "ip route add 10.98.0.0/16 via 10.98.0.0 dev flannel.1 onlink",
        "ip route add 10.244.70.0/24 via 192.168.1.12 proto static",
        "ip route add 10.244.71.0/24 via 192.168.1.12",
        "ip route add 10.244.72.0/24 dev eth0",
        "ip route add unreachable 10.244.73.0/24",
        "ip route add 10.244.9.0/24 via 192.168.1.12 metric 50",
        "ip route add 10.244.9.0/24 via 192.168.1.12 table 77",
        "ip neigh add 192.168.1.55 lladdr 02:00:00:00:00:55 nud permanent dev eth0",
        "ip neigh add 192.168.77.9 lladdr 02:00:00:00:00:79 nud reachable dev flannel.1",
        "bridge fdb add 02:00:00:00:00:78 dst 192.168.1.78 self dynamic dev flannel.1",
    ] {
        pair.a.sh(foreign)?;
    }
    let before = Snapshot::of(&pair.a)?;
    let dynamic = |pair: &TwoNodes| -> Result<String> {
        let neighbour = pair
            .a
            .sh("ip neigh show 192.168.77.9 dev flannel.1")?
            .stdout;
        Ok(neighbour
            + &pair
                .a
                .sh("bridge fdb get 02:00:00:00:00:78 dev flannel.1 self")?
                .stdout)
    };
    assert!(dynamic(&pair)?.contains("192.168.1.78"));
    // A restart reads everything back and sweeps; a change makes the running agent sweep again.
    agent.sigterm_and_wait()?;
    agent.restart()?;
    agent.wait_ready()?;
    let ten = StockNode::vxlan(10, "192.168.1.98", "02:00:00:00:00:10");
    ten.put(&pair.etcd)?;
    agent.wait_peers(2)?;
    pair.etcd.delete(&ten.key())?;
    agent.wait_peers(1)?;
    thread::sleep(Duration::from_secs(2));
    assert_eq!(before.changes(&Snapshot::of(&pair.a)?), "");
    assert!(
        dynamic(&pair)?.contains("02:00:00:00:00:79"),
        "{}",
        dynamic(&pair)?
    );
    Ok(())
}
