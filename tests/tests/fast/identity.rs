//! Mode `fast`: a flow is learned only if the packet behind netfilter is the one that was recorded
//! before it.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use flannel_common::{
    abi::{program::Program, reason::Reason, tick},
    flow::{Egress, Flow, FlowAction},
};
use flannel_datapath::kernel::clock;
use flannel_tests::{
    Pod,
    kernel::{hooks::ifindex, nfqueue::Answers},
    load::rr::{Protocol, rr},
    no_agent::{BareNode, BarePair, Key},
    packet::{
        Packet,
        wire::{inject, inject_frame},
    },
};

/// Sends equal datagrams from many ports, each many times: only the ports distinguish them.
fn flood(from: &Pod, to: &Pod, ports: u16, length: Duration) -> Result<()> {
    let target = SocketAddr::new(to.ip(), 7777);
    from.enter(|| -> Result<()> {
        let sockets = (0..ports)
            .map(|_| UdpSocket::bind("0.0.0.0:0"))
            .collect::<Result<Vec<_>, _>>()?;
        let start = Instant::now();
        while start.elapsed() < length {
            for socket in &sockets {
                // What the far end says of a closed port is none of this test's business.
                drop(socket.send_to(&[0x5a; 100], target));
            }
        }
        Ok(())
    })?
}

/// Without translation every flow must come out as it went in, and where its destination is.
fn pairs_are_right(node: &BareNode, own: &Pod) -> Result<usize> {
    let veth = node.veth_index(own)?;
    let flows = node.flows()?;
    for (key, flow) in &flows {
        let out = flow.action.out;
        ensure!(key.same_tuple(&out), "{key:?} came out as {out:?}");
        let [pod_side, other] = if flow.action.egress == Egress::POD {
            [out.device, key.device]
        } else {
            [key.device, out.device]
        };
        ensure!(
            pod_side == veth && other != veth,
            "{key:?} came out as {out:?}"
        );
    }
    Ok(flows.len())
}

fn flooded(pair: &BarePair) -> Result<()> {
    thread::scope(|scope| {
        let floods: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| flood(&pair.near, &pair.far, 32, Duration::from_secs(2))))
            .collect();
        floods
            .into_iter()
            .try_for_each(|flood| flood.join().expect("no panic"))
    })
}

#[test]
fn equal_packets_of_many_flows_are_distinguished() -> Result<()> {
    let pair = BarePair::new("fastequal")?;
    flooded(&pair)?;
    ensure!(
        pairs_are_right(&pair.a, &pair.near)? > 32,
        "{:#?}",
        pair.a.counts()?
    );
    ensure!(
        pairs_are_right(&pair.b, &pair.far)? > 32,
        "{:#?}",
        pair.b.counts()?
    );
    Ok(())
}

#[test]
fn packets_that_changed_the_cpu_teach_nothing() -> Result<()> {
    let pair = BarePair::new("fastrps")?;
    for node in pair.nodes() {
        // Only here: elsewhere the CPU is the same one before and behind the record.
        fs::write(
            node.node
                .outside_path("/sys/class/net/cni0/queues/rx-0/rps_cpus"),
            "3",
        )?;
    }
    flooded(&pair)?;
    pairs_are_right(&pair.a, &pair.near)?;
    pairs_are_right(&pair.b, &pair.far)?;
    let stale = pair.a.counted(Program::ToTunnel, Reason::RecordStale)?;
    ensure!(
        stale > 0,
        "no packet changed the CPU: {:#?}",
        pair.a.counts()?
    );
    Ok(())
}

#[test]
fn copies_do_not_take_the_record() -> Result<()> {
    let mut pair = BarePair::new("fastcopy")?;
    let monitor = pair.b.add_pod("monitor")?;
    pair.b.nft(&format!(
        "table ip copy {{ chain pre {{ type filter hook prerouting priority -150;
            ip daddr {} dup to {}\n}}\n}}",
        pair.far.ip(),
        monitor.ip()
    ))?;
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        rr(
            &pair.near,
            &pair.far,
            pair.far.ip(),
            protocol,
            Duration::from_secs(1),
        )?;
    }
    ensure!(
        pairs_are_right(&pair.b, &pair.far)? > 0,
        "{:#?}",
        pair.b.counts()?
    );
    ensure!(
        pair.b.counted(Program::ToPod, Reason::RecordStale)? > 0,
        "nothing was copied: {:#?}",
        pair.b.counts()?
    );
    Ok(())
}

#[test]
fn flooded_frames_lead_to_no_other_pod() -> Result<()> {
    let mut pair = BarePair::new("fastflood")?;
    // The oldest port gets the packet itself, the others copies: so the pod meant is not the
    // oldest.
    let meant = pair.b.add_pod("p2")?;
    pair.b.node.sh(&format!(
        "bridge link set dev {} learning off flood on",
        meant.veth()
    ))?;
    pair.b.node.sh("ip link set cni0 type bridge fdb_flush")?;
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        rr(
            &pair.near,
            &meant,
            meant.ip(),
            protocol,
            Duration::from_secs(1),
        )?;
    }
    pairs_are_right(&pair.b, &meant)?;
    let elsewhere = pair.b.counted(Program::ToPod, Reason::OtherReceiver)?;
    ensure!(
        elsewhere > 0,
        "nothing was flooded: {:#?}",
        pair.b.counts()?
    );
    Ok(())
}

/// UDP between pods while a process judges every packet on the CPU that received it: no flow is
/// learned.
fn judged_by_a_process(pair: &BarePair) -> Result<()> {
    pair.a
        .iptables("-A FORWARD -p udp -j NFQUEUE --queue-num 0")?;
    let answers = Answers::start(&pair.a.node, 0)?;
    for _ in 0..3 {
        rr(
            &pair.near,
            &pair.far,
            pair.far.ip(),
            Protocol::Udp,
            Duration::from_secs(1),
        )?;
    }
    ensure!(
        answers.count() > 100,
        "{} packets were judged",
        answers.count()
    );
    ensure!(
        pair.a.counted(Program::ToTunnel, Reason::RecordStale)? > 0,
        "{:#?}",
        pair.a.counts()?
    );
    ensure!(pair.a.flows()?.is_empty(), "{:#?}", pair.a.flows()?);
    Ok(())
}

#[test]
fn packets_that_userspace_judges_are_never_learned() -> Result<()> {
    let pair = BarePair::new("fastqueue")?;
    pair.a.count_polls()?;
    judged_by_a_process(&pair)
}

/// Before the agent notices a listener, polls are not counted: the process that gives the verdict
/// is not the task that the receive softirq interrupted.
#[test]
fn packets_that_userspace_judges_leave_in_another_task() -> Result<()> {
    judged_by_a_process(&BarePair::new("fasttask")?)
}

#[test]
fn a_pod_that_uses_anothers_address_gets_nothing_of_its_flow() -> Result<()> {
    let mut pair = BarePair::new("fastspoof")?;
    let thief = pair.a.add_pod("thief")?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    let veth = pair.a.veth_index(&thief)?;
    for id in 1..200 {
        inject(&thief, &Packet::tcp(talk.ends()?, id, &[], |_| ()))?;
        talk.exchange(1)?;
    }
    let known: Vec<_> = pair
        .a
        .usable_flows()?
        .into_iter()
        .filter(|(key, _)| key.device == veth)
        .collect();
    ensure!(known.is_empty(), "{known:#?}");
    pair.talk_until_replayed(&mut talk, 500)
}

/// The flow back from port 7777 of `far` to port 40000 of `near`, as if that one had come from a
/// Service.
fn flow_from_a_service(
    pair: &BarePair,
    near: Ipv4Addr,
    far: Ipv4Addr,
) -> Result<(Key, Flow<[u32; 1]>)> {
    let words = |addr: Ipv4Addr| [u32::from_ne_bytes(addr.octets())];
    let ports = |[a, b]: [u16; 2]| {
        u32::from_ne_bytes(
            [a.to_be_bytes(), b.to_be_bytes()]
                .concat()
                .try_into()
                .expect("four"),
        )
    };
    let tunnel = ifindex(&pair.a.node, "flannel.1")?;
    let back = Key {
        source: words(far),
        destination: words(near),
        ports: ports([7777, 40_000]),
        protocol: 17,
        device: tunnel,
    };
    let out = Key {
        source: words(Ipv4Addr::new(10, 96, 0, 1)),
        device: pair.a.veth_index(&pair.near)?,
        ..back
    };
    let generation = pair.a.maps.mode.get()?.generation();
    let action = FlowAction {
        out,
        generation,
        mtu: 1450,
        egress: Egress::POD,
        ttl_step: 1,
        ..FlowAction::default()
    };
    let mut flow = Flow {
        action,
        ..Flow::default()
    };
    let now = tick::tick(clock::now_ns());
    flow.stamp(action.check(&back), now, now + 60_000, None);
    Ok((back, flow))
}

/// A reverse flow that leads elsewhere does not belong to this connection: the programs trust
/// neither of the two.
#[test]
fn flows_that_do_not_mirror_each_other_are_both_forgotten() -> Result<()> {
    let mut pair = BarePair::new("fastmirror")?;
    let (IpAddr::V4(near), IpAddr::V4(far)) = (pair.near.ip(), pair.far.ip()) else {
        anyhow::bail!("IPv4 pods")
    };
    let (back, flow) = flow_from_a_service(&pair, near, far)?;
    pair.a.maps.flows.write(back, flow)?;
    ensure!(pair.a.current_flows()?.len() == 1);
    pair.near.enter(|| -> Result<()> {
        let socket = UdpSocket::bind("0.0.0.0:40000")?;
        for _ in 0..200 {
            drop(socket.send_to(&[0x5a; 100], (far, 7777)));
        }
        Ok(())
    })??;
    ensure!(
        pair.a.counted(Program::ToTunnel, Reason::MirrorDiffers)? == 1,
        "{:#?}",
        pair.a.counts()?
    );
    let current = pair.a.current_flows()?;
    ensure!(
        !current.iter().any(|(key, _)| key.same(&back)),
        "{current:#?}"
    );
    ensure!(
        current
            .iter()
            .any(|(key, _)| key.same_tuple(&back.reversed())),
        "what is seen once more is learned: {current:#?}"
    );
    Ok(())
}

#[test]
fn tagged_packets_are_the_kernels() -> Result<()> {
    let pair = BarePair::new("fastvlan")?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    let count = || pair.a.counted(Program::FromPod, Reason::VlanTagged);
    let before = count()?;
    let frame =
        Packet::udp(pair.near.ip(), pair.far.ip(), 1, 64).framed([0xff; 6], [2, 0, 0, 0, 0, 9]);
    let frame = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
    for _ in 0..64 {
        inject_frame(&pair.near, "eth0", &frame)?;
    }
    ensure!(
        count()? - before == 64,
        "{} of 64: {:#?}",
        count()? - before,
        pair.a.counts()?
    );
    ensure!(
        pair.a.flows()?.iter().all(|(key, _)| key.protocol == 6),
        "{:#?}",
        pair.a.flows()?
    );
    Ok(())
}

#[test]
fn what_leaves_by_another_vtep_is_not_learned() -> Result<()> {
    let pair = BarePair::new("fastvtep")?;
    pair.a.node.sh(
        "ip neighbour replace 10.244.2.0 lladdr 02:00:00:00:00:77 dev flannel.1 nud permanent",
    )?;
    pair.a
        .node
        .sh("bridge fdb append 02:00:00:00:00:77 dev flannel.1 dst 192.168.1.12 self permanent")?;
    flood(&pair.near, &pair.far, 8, Duration::from_secs(1))?;
    ensure!(
        pair.a.counted(Program::ToTunnel, Reason::UnexpectedMac)? > 100,
        "{:#?}",
        pair.a.counts()?
    );
    ensure!(pair.a.flows()?.is_empty(), "{:#?}", pair.a.flows()?);
    Ok(())
}
