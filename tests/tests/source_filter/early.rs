//! The guard at the driver. A veth has native XDP, a bridge has not.

use std::path::Path;

use anyhow::{Result, ensure};
use flannel_datapath::{
    PinRoot, Subnets,
    attach::{EarlyGuard, XdpGuardMode},
    load,
};
use flannel_tests::{Agent, TwoNodes, cluster};
use serde_json::Value;

use super::{Guarded, other};

fn xdp(agent: &Agent) -> Result<Value> {
    Ok(agent.status()?["guard"]["xdp"].clone())
}

fn on_eth0(pair: &TwoNodes) -> Result<bool> {
    Ok(pair
        .a
        .sh("ip -d link show dev eth0")?
        .stdout
        .contains("prog/xdp"))
}

#[test]
fn strangers_are_dropped_at_the_driver_and_peers_are_not() -> Result<()> {
    let lab = Guarded::new("early", &["--xdp-guard=native"])?;
    lab.wait_modes("enforce", "audit")?;
    ensure!(
        xdp(&lab.agent)?["attached"] == true && on_eth0(&lab.pair)?,
        "{}",
        xdp(&lab.agent)?
    );
    lab.expect(false, "enforced")?;
    let counted = |reason| lab.agent.counted("from_underlay", reason);
    ensure!(
        counted("refused_early")? >= 6 && counted("refused_vtep")? == 0,
        "not at the driver"
    );
    lab.set("audit")?;
    lab.expect(true, "audit")?;
    ensure!(counted("unknown_vtep")? >= 6, "left to TC");
    lab.set("enforce")?;
    other().put(&lab.pair.etcd)?;
    lab.agent.wait_peers(2)?;
    lab.expect(true, "a peer")?;
    lab.agent.kill9()?;
    lab.agent.restart()?;
    lab.agent.wait_ready()?;
    ensure!(
        xdp(&lab.agent)?["attached"] == true,
        "an agent that follows another: {}",
        xdp(&lab.agent)?
    );
    lab.agent.sigterm_and_wait()?;
    ensure!(on_eth0(&lab.pair)?, "it needs no agent");
    lab.agent.cli(&["cleanup"])?;
    ensure!(!on_eth0(&lab.pair)?, "cleaned up");
    Ok(())
}

/// One without the flag takes off what one with it has put there.
#[test]
fn nothing_is_done_over_others_or_without_the_driver() -> Result<()> {
    let pair = TwoNodes::new("earlyoff", cluster::VXLAN)?;
    let start = |flags: &[&str]| pair.a.ready_agent(pair.options()?.flags(flags));
    let agent = start(&["--xdp-guard=auto"])?;
    ensure!(on_eth0(&pair)?, "{}", xdp(&agent)?);
    agent.sigterm_and_wait()?;
    let agent = start(&[])?;
    ensure!(
        !on_eth0(&pair)? && xdp(&agent)? == Value::Null,
        "{}",
        xdp(&agent)?
    );
    agent.sigterm_and_wait()?;

    // Another owner's, which happens to be of our making.
    let foreign = pair.a.enter(|| -> Result<EarlyGuard> {
        let pins = PinRoot::new(Path::new("/sys/fs/bpf/foreign"));
        load(&pins, &[], Subnets::default(), None)?;
        let mut guard = EarlyGuard::new(pins, XdpGuardMode::Native);
        guard.apply(Some(nix::net::if_::if_nametoindex("eth0")?));
        Ok(guard)
    })??;
    ensure!(foreign.is_attached(), "{:?}", foreign.refused());
    let agent = start(&["--xdp-guard=auto"])?;
    let reason = xdp(&agent)?["reason"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    ensure!(reason.contains("busy"), "{reason}");
    agent.sigterm_and_wait()?;
    ensure!(on_eth0(&pair)?, "the other's is still there");
    pair.a.sh("rm -r /sys/fs/bpf/foreign")?;

    pair.a.sh("ip link add br0 type bridge")?;
    pair.a.sh("ip link set br0 up")?;
    pair.a.sh("ip address flush dev eth0")?;
    pair.a.sh("ip link set eth0 master br0")?;
    pair.a.address("br0", "192.168.1.11/24", None)?;
    let mut options = pair.options()?.flag("--xdp-guard=native");
    for flag in &mut options.flags {
        *flag = flag.replace("--iface=eth0", "--iface=br0");
    }
    let agent = pair.a.ready_agent(options)?;
    let reason = xdp(&agent)?["reason"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    ensure!(reason.contains("not supported"), "{reason}");
    agent.wait_log(&["--xdp-guard=native cannot be done"])?;
    ensure!(
        !pair.a.sh("ip -d link show dev br0")?.stdout.contains("xdp"),
        "no generic mode"
    );
    Ok(())
}
