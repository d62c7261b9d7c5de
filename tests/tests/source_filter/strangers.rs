//! Tunnel packets of a host without a lease.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    eventually,
    packet::{frame, wire::Capture, with_priority_tags},
};

use super::{Guarded, SOON};

#[test]
fn strangers_reach_pods_unless_the_guard_is_enforced_in_every_mode() -> Result<()> {
    let lab = Guarded::new("strange", &[])?;
    lab.wait_modes("enforce", "audit")?;
    for mode in ["kernel", "encap", "fast"] {
        lab.agent.set_mode(mode)?;
        for guard in ["off", "audit", "enforce"] {
            lab.set(guard)?;
            lab.expect(guard != "enforce", &format!("mode {mode}, guard {guard}"))?;
        }
    }
    refusals_are_reported(&lab)?;
    at_another_address(&lab)?;
    hidden_in_fragments(&lab)?;
    behind_priority_tags(&lab)?;
    lab.agent.cli(&["guard", "set", "auto"])?;
    lab.wait_modes("enforce", "audit")
}

/// In the log, in `status` and by `guard show`.
fn refusals_are_reported(lab: &Guarded) -> Result<()> {
    lab.agent.wait_log(&[
        "the guard drops tunnel packets",
        "192.168.1.12 (",
        "refused_vtep",
    ])?;
    ensure!(
        lab.agent.log_count("the guard drops tunnel packets") <= 2,
        "a line for each packet, or nearly"
    );
    let refused = lab.refused()?;
    lab.agent.wait_status("what was refused", |status| {
        ensure!(
            status["guard"]["outer"]["refused"] == refused,
            "{}",
            status["guard"]
        );
        Ok(())
    })?;
    let shown = lab.agent.cli_json(&["guard", "show", "-o", "json"])?;
    let sources: Vec<_> = shown["sources"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| row["source"].clone())
        .collect();
    ensure!(
        sources.contains(&"192.168.1.12".into()) && sources.contains(&"2001:db8:1::12".into()),
        "{shown}"
    );
    let text = lab.agent.cli(&["guard", "show"])?.stdout;
    ensure!(
        text.contains("outer   enforce (chosen at run time)") && text.contains("\n192.168.1.12 "),
        "{text}"
    );
    Ok(())
}

/// The socket of the vxlan device is bound to no address.
fn at_another_address(lab: &Guarded) -> Result<()> {
    let fdb = |to: &str| {
        let status = lab.agent.status()?;
        let mac = status["device"]["mac"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        lab.pair.b.sh(&format!(
            "bridge fdb replace {mac} dst {to} self permanent dev flannel.1"
        ))
    };
    let to = lab.pod.ip4()?.into();
    lab.pair.a.sh("ip address add 192.168.1.99/24 dev eth0")?;
    fdb("192.168.1.99")?;
    lab.set("audit")?;
    eventually("packets to another address at the pod", SOON, || {
        let count = lab.arrive(to, "")?;
        ensure!(count == 3, "{count} of 3");
        Ok(())
    })?;
    lab.set("enforce")?;
    let count = lab.arrive(to, "")?;
    ensure!(
        count == 0,
        "{count} of 3 got in by another address of the host"
    );
    fdb("192.168.1.11")?;
    Ok(())
}

/// The vxlan device would put them together.
fn hidden_in_fragments(lab: &Guarded) -> Result<()> {
    lab.pair.b.sh("ip link set eth0 mtu 1400")?;
    let to = lab.pod.ip4()?.into();
    lab.set("audit")?;
    eventually("fragments at the pod", SOON, || {
        let count = lab.arrive(to, "-s 1400 -M dont")?;
        ensure!(count == 3, "{count} of 3");
        Ok(())
    })?;
    lab.set("enforce")?;
    let count = lab.arrive(to, "-s 1400 -M dont")?;
    ensure!(count == 0, "{count} of 3 got through in fragments");
    Ok(())
}

/// The kernel takes tags without a VLAN (identifier 0) off, however many, and delivers the packet.
fn behind_priority_tags(lab: &Guarded) -> Result<()> {
    // So that what is captured has its checksums.
    lab.pair.b.sh("ethtool -K eth0 tx off")?;
    let underlay = Capture::start(&lab.pair.a, "eth0", is_tunnel)?;
    for to in lab.pod.addresses() {
        lab.set("audit")?;
        underlay.clear();
        lab.arrive(*to, "")?;
        let frames = underlay.frames();
        let plain = frames
            .first()
            .with_context(|| format!("a tunnel packet to {to}"))?;
        for tags in 0..4 {
            let frame = with_priority_tags(plain, tags);
            for (mode, expected) in [("audit", 3), ("enforce", 0)] {
                lab.set(mode)?;
                let count = lab.arrive_as(&frame)?;
                ensure!(
                    count == expected,
                    "{to} behind {tags} tags, guard {mode}: {count} of 3 arrived"
                );
            }
        }
    }
    Ok(())
}

/// Of either family.
fn is_tunnel(frame: &[u8]) -> bool {
    frame::is_tunnel(frame) || frame::is_tunnel_v6(frame)
}
