//! A node in mode `fast` whose peers are not, and one that cannot be.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent, ChildGuard, TwoNodes,
    cluster::{HOST_GW, VXLAN, config, topology::Stack},
    eventually,
    fast::FLAGS,
    kernel::hooks::{Side, programs},
    load::rr::{Protocol, rr},
};

use super::{FOLLOWED, ask, on_external};

/// The other node stays in mode `kernel` and replays no packet.
#[test]
fn one_node_alone_replays_what_it_sends_and_receives() -> Result<()> {
    let nodes = TwoNodes::with("gw-alone", Stack::Dual, &config(Stack::Dual, HOST_GW))?;
    let fast = nodes.options()?.flags(&FLAGS);
    let (agent, other) = (
        nodes.a.agent(fast)?,
        nodes.b.agent(nodes.options()?.flag("--datapath=kernel"))?,
    );
    [&agent, &other]
        .into_iter()
        .try_for_each(Agent::wait_ready)?;
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    agent.wait_pod(&near, true, true)?;
    assert_eq!(
        (on_external(&agent)?, on_external(&other)?),
        (FOLLOWED.map(str::to_owned).to_vec(), Vec::new())
    );
    for at in far.addresses() {
        near.wait_ping(*at)?;
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let before = counted(&agent)?;
            let report = rr(&near, &far, *at, protocol, Duration::from_secs(3))?;
            ensure!(report.lost == 0, "{report:?}");
            for (before, now) in before.into_iter().zip(counted(&agent)?) {
                let [replayed, waiting] = [now[0] - before[0], now[1] - before[1]];
                let most =
                    (replayed + waiting) * 100 >= report.transactions * 95 && replayed > waiting;
                ensure!(
                    most,
                    "{at}, {protocol:?}: {replayed}, and {waiting} before it was confirmed, of \
                     {report:?}"
                );
            }
        }
    }
    ensure!(other.replayed()? == 0, "the other node is in mode kernel");
    smaller_link(&agent)
}

/// Packets of pods and those for them: replayed, and passed because their flow was not yet
/// confirmed.
fn counted(agent: &Agent) -> Result<Vec<[u64; 2]>> {
    let of = |by| {
        Ok([
            agent.counted(by, "replayed")?,
            agent.counted(by, "unconfirmed")?,
        ])
    };
    ["from_pod", "from_underlay"].into_iter().map(of).collect()
}

/// The MTU is part of the state that flows are learned under: a smaller one begins a new
/// generation.
fn smaller_link(agent: &Agent) -> Result<()> {
    let before = agent.generation()?;
    agent.node().sh("ip link set eth0 mtu 1400")?;
    eventually("a new generation", Duration::from_secs(5), || {
        let (now, mtu) = (agent.generation()?, agent.node().subnet_env()?.mtu);
        ensure!(now != before && mtu == 1400, "{now}, {mtu}");
        Ok(())
    })
}

/// Programs read frames, and packets of such a device have none.
#[test]
fn a_link_that_is_no_ethernet_is_the_kernels() -> Result<()> {
    let nodes = TwoNodes::with("gw-tun", Stack::V4, &config(Stack::V4, HOST_GW))?;
    let (agent, _owner) = agent_on_tun(&nodes)?;
    ask(&agent, "fast", "kernel", Some("tun0 is no Ethernet device"))?;
    let hooked = nodes
        .a
        .sh("find /sys/fs/bpf/flannel -path *links/*")?
        .stdout;
    ensure!(hooked.is_empty(), "{hooked}");
    Ok(())
}

/// The same below a tunnel, where the rest of the programs have their places.
#[test]
fn below_a_tunnel_no_program_reads_packets_without_frames() -> Result<()> {
    let nodes = TwoNodes::new("vx-tun", VXLAN)?;
    let _running = agent_on_tun(&nodes)?;
    for side in [Side::Ingress, Side::Egress] {
        let there = programs(&nodes.a, "tun0", side)?;
        ensure!(there.is_empty(), "{side}: {there:?}");
    }
    let on_tunnel = programs(&nodes.a, "flannel.1", Side::Egress)?;
    ensure!(on_tunnel == ["to_tunnel"], "{on_tunnel:?}");
    Ok(())
}

/// Attaches to `tun0` as a VPN's process does: without one the device has no carrier.
const OWNER: &str = "import fcntl, struct, time
tun = open('/dev/net/tun', 'r+b', buffering=0)
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454ca, 1, 0x1000
fcntl.ioctl(tun, TUNSETIFF, struct.pack('16sH22x', b'tun0', IFF_TUN | IFF_NO_PI))
time.sleep(600)";

/// An agent in mode `fast` whose external interface carries packets without frames, and the owner
/// of that interface.
fn agent_on_tun(nodes: &TwoNodes) -> Result<(Agent, ChildGuard)> {
    nodes.a.sh("ip tuntap add dev tun0 mode tun")?;
    nodes.a.sh("ip address add 192.168.7.11/24 dev tun0")?;
    nodes.a.sh("ip link set tun0 up")?;
    let owner = nodes.a.spawn("owner of tun0", ["python3", "-c", OWNER])?;
    eventually("a carrier", Duration::from_secs(10), || {
        ensure!(
            nodes.a.sh("cat /sys/class/net/tun0/carrier")?.stdout.trim() == "1",
            "none: {}",
            owner.log()
        );
        Ok(())
    })?;
    let mut options = nodes.options()?.flag("--datapath=fast");
    options.flags.retain(|flag| flag != "--iface=eth0");
    let agent = nodes.a.ready_agent(options.flag("--iface=tun0"))?;
    Ok((agent, owner))
}
