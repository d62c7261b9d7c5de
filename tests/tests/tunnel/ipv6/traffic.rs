//! Packets that pods send over IPv6 arrive: in mode `encap` as in mode `kernel`, over a cable with
//! offloads and over one without.

use std::{thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_common::{mode::Mode, program::Program, reason::Reason, stats::Counter};
use flannel_tests::{
    eventually,
    load::{
        iperf::tcp_stream,
        segmented::{Segmented, send},
    },
    packet_v6::{fault, is_encapsulated_by_us, is_tunnel},
    pair::settle,
    topology::{OFFLOAD, WIRE},
    wire::Capture,
};

use super::tunnel::{FlowKey, Tunnel};

/// Runs `check` in both modes over both kinds of cable, and sees to it that the packets went the way they should.
fn in_every_way(name: &str, check: impl Fn(&Tunnel) -> Result<()>) -> Result<()> {
    let Some(mut tunnel) = Tunnel::new(name)? else { return Ok(()) };
    for (cable, features) in [("offload", OFFLOAD), ("wire", WIRE)] {
        tunnel.set_offloads(features, features)?;
        for mode in [Mode::Kernel, Mode::Encap] {
            let way = format!("mode {mode}, cable {cable}");
            tunnel.set_mode(mode)?;
            let before = tunnel.near.encapsulated()?;
            check(&tunnel).with_context(|| way.clone())?;
            let taken = tunnel.near.encapsulated()? - before;
            ensure!((taken > 0) == (mode == Mode::Encap), "{way}: {taken} packets encapsulated by the programs");
        }
    }
    Ok(())
}

/// The last CPU: both ends of a stream on one, or the veth cables reorder by themselves.
fn cpu() -> Result<usize> {
    Ok(thread::available_parallelism()?.get() - 1)
}

#[test]
fn bulk_tcp_travels_in_large_packets_and_hardly_repeats_itself() -> Result<()> {
    in_every_way("v6tcp", |tunnel| {
        let (near, far) = (&tunnel.near, &tunnel.far);
        let segments = |name: &str| near.pod.counter("Tcp", name);
        let left = || sum(near, Program::ToTunnel, [Reason::Encapsulated, Reason::ModeKernel]);
        let came = || sum(far, Program::FromUnderlay, [Reason::TunnelGood]);
        let (before, sent, again) = ([left()?, came()?], segments("OutSegs")?, segments("RetransSegs")?);
        let stream = tcp_stream(&near.pod, &far.pod, far.pod.ip(), 2, Some(cpu()?))?;
        let (after, sent, again) = ([left()?, came()?], segments("OutSegs")? - sent, segments("RetransSegs")? - again);
        println!("{:.2} Gbit/s, {again} of {sent} segments again", stream.bits_per_second / 1e9);
        ensure!(stream.bits_per_second > 0.0, "{stream:?}");
        ensure!(again * 100 <= sent, "{again} of {sent} segments were sent again");
        for (side, after, before) in [("sender", after[0], before[0]), ("receiver", after[1], before[1])] {
            let mean = (after.bytes - before.bytes) / (after.packets - before.packets).max(1);
            ensure!(mean > 3 * 1430, "packets of {mean} bytes on average: the {side} does not have them in one");
        }
        Ok(())
    })
}

/// Returns the sum of what a program counted under these reasons.
fn sum<const N: usize>(end: &FlowKey, program: Program, reasons: [Reason; N]) -> Result<Counter> {
    reasons.into_iter().try_fold(Counter::default(), |sum, reason| {
        let Counter { packets, bytes } = end.tally(program, reason)?;
        Ok(Counter { packets: sum.packets + packets, bytes: sum.bytes + bytes })
    })
}

#[test]
fn datagrams_cut_by_the_kernel_arrive_whole_and_in_order() -> Result<()> {
    in_every_way("v6gso", |tunnel| {
        let (near, far) = (&tunnel.near, &tunnel.far);
        let sent = |load| send(&near.pod, &far.pod, far.pod.ip(), load);
        // The path must have been seen to take datagrams of this size, or the programs leave them to the kernel.
        sent(Segmented { sends: 2, segments: 1, size: 1200 })?;
        let before = near.encapsulated()?;
        let numbers = sent(Segmented { sends: 50, segments: 40, size: 1200 })?;
        let taken = near.encapsulated()? - before;
        ensure!(taken == 0 || taken >= 40, "{taken} of 50 buffers encapsulated");
        ensure!(numbers.into_iter().eq(0..2000), "lost, repeated or out of order");
        Ok(())
    })
}

/// Cut by the sending node and not merged by the receiving one: every segment is a packet in its own right, with
/// the outer checksum 0 in each.
#[test]
fn every_segment_leaves_with_checksum_zero_and_its_own_lengths() -> Result<()> {
    let Some(tunnel) = Tunnel::new("v6seg")? else { return Ok(()) };
    tunnel.set_offloads("tso off tx-udp_tnl-segmentation off tx off", "gro off")?;
    let (near, far) = (&tunnel.near, &tunnel.far);
    let sent = |load| send(&near.pod, &far.pod, far.pod.ip(), load);
    sent(Segmented { sends: 2, segments: 1, size: 1200 })?;
    let capture = Capture::start(&far.node, "eth0", is_tunnel)?;
    let before = near.encapsulated()?;
    sent(Segmented { sends: 10, segments: 40, size: 1200 })?;
    let stream = || tcp_stream(&near.pod, &far.pod, far.pod.ip(), 1, Some(cpu()?));
    eventually("a stream", Duration::from_secs(5), stream)?;
    ensure!(near.encapsulated()? - before > 10, "nothing was encapsulated");
    let frames = capture.frames();
    let ours: Vec<_> = frames.iter().filter(|frame| is_encapsulated_by_us(frame)).collect();
    ensure!(ours.len() * 10 > frames.len() * 9, "{} of {} frames are ours", ours.len(), frames.len());
    for frame in &frames {
        if let Some(fault) = fault(frame) {
            anyhow::bail!("{fault}: {:02x?}", &frame[..frame.len().min(160)]);
        }
    }
    let full = ours.iter().filter(|frame| frame.len() == 1514).count();
    ensure!(full * 2 > ours.len(), "{full} of {} frames are full", ours.len());
    Ok(())
}

/// The receiver of replies also counts them as tunnel packets of a known peer, regardless of
/// whether the kernel or the programs encapsulated them.
#[test]
fn received_packets_are_known_by_their_sender() -> Result<()> {
    in_every_way("v6known", |tunnel| {
        let good = || Ok::<_, anyhow::Error>(tunnel.near.tally(Program::FromUnderlay, Reason::TunnelGood)?.packets);
        let before = good()?;
        for _ in 0..2 {
            tunnel.near.pod.ping(tunnel.far.pod.ip())?;
        }
        ensure!(good()? - before >= 6, "{} of 6", good()? - before);
        Ok(())
    })
}

/// Routers announce themselves by their link-local addresses, so that is what an IPv6 route's next hop mostly is.
#[test]
fn a_next_hop_may_be_a_link_local_address() -> Result<()> {
    let Some(mut tunnel) = Tunnel::new("v6hop")? else { return Ok(()) };
    settle(&tunnel.far.node)?;
    let addresses = tunnel.far.node.sh("ip -6 -o address show dev eth0 scope link")?.stdout;
    let text =
        addresses.split_ascii_whitespace().find_map(|word| word.strip_suffix("/64")).context("a link-local one")?;
    let route = format!("ip -6 route add {}/128 via {text} dev eth0", tunnel.far.vtep);
    tunnel.near.node.sh(&route)?;
    tunnel.near.write_peer(text.parse()?)?;
    let before = tunnel.near.encapsulated()?;
    for _ in 0..2 {
        tunnel.near.pod.ping(tunnel.far.pod.ip())?;
    }
    ensure!(tunnel.near.encapsulated()? > before, "nothing was encapsulated");
    Ok(())
}

/// The outer packet is never fragmented. In either mode, the kernel reports the smaller MTU to a
/// pod whose packets are too large for the path.
#[test]
fn a_packet_too_large_for_the_underlay_is_answered() -> Result<()> {
    let Some(mut tunnel) = Tunnel::new("v6big")? else { return Ok(()) };
    let (from, to) = (tunnel.near.pod.clone(), tunnel.far.pod.ip());
    tunnel.near.node.sh(&format!("ip -6 route add {}/128 dev eth0 mtu 1400", tunnel.far.vtep))?;
    for mode in [Mode::Kernel, Mode::Encap] {
        tunnel.set_mode(mode)?;
        from.sh("ip -6 route flush cache")?;
        let ping = |size: usize| format!("ping -n -c 4 -i 0.05 -W 1 -M do -s {size} {to}");
        // 1400 bytes less the tunnel's 70.
        let too_large = from.command(ping(1430 - 48).split(' ')).any_code().run()?.stdout;
        ensure!(too_large.contains("mtu=1330") || too_large.contains("mtu = 1330"), "mode {mode}: {too_large}");
        let fits = from.sh(&ping(1330 - 48))?.stdout;
        ensure!(fits.contains(" 0% packet loss"), "mode {mode}: {fits}");
    }
    ensure!(tunnel.near.encapsulated()? > 0, "nothing was encapsulated");
    Ok(())
}
