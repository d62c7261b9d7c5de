//! Tunnel packets of a host that has a lease and is therefore indistinguishable from a stock node.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    load::{UdpLoad, UdpRun},
    packet::{frame, wire::Capture},
};

use super::{Guarded, OTHER, other};

#[test]
fn a_stock_node_exchanges_traffic_both_ways_in_every_mode() -> Result<()> {
    let lab = Guarded::new(
        "stockpeer",
        &["--guard-outer=enforce", "--guard-inner=enforce"],
    )?;
    other().put(&lab.pair.etcd)?;
    lab.agent.wait_peers(2)?;
    lab.wait_modes("enforce", "enforce")?;
    // Pods of the other host are IPv6's: its subnet.env is.
    let far = lab.pair.b.add_pod("p1")?;
    let tunnel = Capture::tunnel(&lab.pair.a, "eth0")?;
    for mode in ["kernel", "encap", "fast"] {
        lab.agent.set_mode(mode)?;
        lab.expect(true, &format!("mode {mode}"))?;
        let to_host = format!("10.244.{OTHER}.0").parse()?;
        lab.pod.wait_ping(to_host)?;
        far.wait_ping(lab.pod.addresses()[1])?;
        let load = UdpLoad {
            pps: 1000,
            duration: Duration::from_millis(500),
            payload: 64,
        };
        let stream = UdpRun::start(&far, &lab.pod, lab.pod.addresses()[1], load)?.wait()?;
        ensure!(
            (stream.lost_count(), stream.duplicated) == (0, 0),
            "mode {mode}: {stream:?}"
        );
    }
    let frames = tunnel.frames();
    let has_checksum = |frame: &Vec<u8>| !frame::is_encapsulated_by_us(frame);
    ensure!(
        !frames.is_empty() && frames.iter().all(has_checksum),
        "stock's packets have checksums"
    );
    ensure!(lab.refused()? == 0, "packets of a peer were refused");
    Ok(())
}

/// Such sources are addresses that a node routes without masquerade, or that a pod forges.
#[test]
fn other_inner_sources_pass_unless_the_inner_check_is_enforced() -> Result<()> {
    let lab = Guarded::new("innersource", &[])?;
    other().put(&lab.pair.etcd)?;
    lab.agent.wait_peers(2)?;
    lab.wait_modes("enforce", "audit")?;
    lab.pair.b.sh("ip address add 10.99.0.1/32 dev lo")?;
    lab.pair
        .b
        .sh("ip address add fd00:99::1/128 dev lo nodad")?;
    // Reverse path filters are none of our concern here.
    lab.pair.a.sh("ip route add 10.99.0.1 via 192.168.1.12")?;
    let arrive = |from: [&str; 2]| -> Result<Vec<usize>> {
        lab.pod
            .addresses()
            .iter()
            .zip(from)
            .map(|(to, from)| lab.arrive(*to, &format!("-I {from}")))
            .collect()
    };
    let made_up = ["10.99.0.1", "fd00:99::1"];
    assert_eq!(arrive(made_up)?, [3, 3], "audit lets them pass");
    ensure!(lab.agent.counted("from_underlay", "inner_other_source")? >= 6);
    lab.agent
        .cli(&["guard", "set", "enforce", "--only", "inner"])?;
    lab.wait_modes("enforce", "enforce")?;
    assert_eq!(arrive(made_up)?, [0, 0], "enforce does not");
    assert_eq!(
        arrive(["10.244.8.0", "fd00:10:244:8::"])?,
        [3, 3],
        "its own addresses are as good as before"
    );
    Ok(())
}
