//! Rules on the way out of the host that look at the mark of a tunnel packet, which is that of the
//! packet inside: each mark has its own path state.

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    eventually,
    fast::{Family, FastLab},
    load::datagrams::Datagrams,
};

const PORT: u16 = 9100;
const EACH: u32 = 500;

/// Marked tunnel packets are dropped, unmarked ones are not; without that rule both are carried,
/// and in mode `fast` both are replayed.
pub(crate) fn each_mark_has_a_path_of_its_own(lab: &FastLab) -> Result<()> {
    for mode in ["kernel", "encap", "fast"] {
        lab.set_mode(mode)?;
        for family in Family::ALL {
            marked_are_dropped(lab, mode, family)
                .with_context(|| format!("mode {mode}, {family:?}"))?;
        }
    }
    Ok(())
}

fn marked_are_dropped(lab: &FastLab, mode: &str, family: Family) -> Result<()> {
    let node = &lab.nodes.a;
    let rule = |rule: &str| node.sh(&format!("{} {rule}", family.iptables())).map(drop);
    rule(&format!(
        "-t mangle -A FORWARD -p udp --dport {PORT} -j MARK --set-mark 7"
    ))?;
    rule("-A OUTPUT -p udp --dport 8472 -m mark --mark 7 -j DROP")?;
    let mut plain = Datagrams::open(&lab.near, &lab.far, family.end(&lab.far)?, None)?;
    let mut marked = Datagrams::open(
        &lab.near,
        &lab.far,
        SocketAddr::new(family.of(&lab.far)?, PORT),
        None,
    )?;
    lab.until_replayed_on([mode == "fast"; 2], |messages| plain.exchange(messages))?;
    // A path that was validated for the mark before the rule was there is used for two seconds.
    eventually(
        "marked packets are dropped",
        Duration::from_secs(10),
        || {
            let arrived = arrive(&marked.server, || {
                marked.client.send(b"mark")?;
                plain.exchange(1)
            })?;
            ensure!(arrived == 0, "{arrived} of one");
            Ok(())
        },
    )?;
    let arrived = arrive(&marked.server, || {
        for _ in 0..EACH {
            marked.client.send(b"mark")?;
            plain.exchange(1)?;
        }
        Ok(())
    })?;
    ensure!(
        arrived == 0,
        "{arrived} of {EACH} marked packets passed the DROP"
    );
    rule("-D OUTPUT -p udp --dport 8472 -m mark --mark 7 -j DROP")?;
    marked.server.set_nonblocking(false)?;
    lab.until_replayed_on([mode == "fast"; 2], |messages| marked.exchange(messages))
        .context("without the DROP")?;
    rule(&format!(
        "-t mangle -D FORWARD -p udp --dport {PORT} -j MARK --set-mark 7"
    ))
}

/// Returns the number of datagrams that arrive at a socket during `work`.
fn arrive(socket: &UdpSocket, work: impl FnOnce() -> Result<()>) -> Result<u32> {
    socket.set_nonblocking(true)?;
    let mut buffer = [0; 16];
    while socket.recv(&mut buffer).is_ok() {}
    work()?;
    let mut arrived = 0;
    while socket.recv(&mut buffer).is_ok() {
        arrived += 1;
    }
    Ok(arrived)
}
