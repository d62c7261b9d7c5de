//! The cost of a packet: the process against one that makes a system call for each packet and each
//! direction, as stock flannel's does. The figures are printed; none is asserted.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    net::{Ipv4Addr, UdpSocket},
    os::fd::AsRawFd as _,
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Node,
    cluster::Cluster,
    eventually,
    load::iperf::tcp_stream,
    stock::{StockBinary, StockProcess},
};
use nix::libc::{self, IFF_NO_PI, IFF_TUN, TUNSETIFF, TUNSETOFFLOAD, ifreq};

use super::{DEVICE, cluster, pid};

const PORT: u16 = 8285;
/// Streams of each kind, and the seconds of each.
const RUNS: u32 = 2;
const SECONDS: u32 = 2;

/// Opens a TUN device without any offload; the device keeps those of the process before.
fn open(name: &str) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")?;
    // SAFETY: the structure is plain data, and zeroes are valid in all its fields.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(IFF_TUN | IFF_NO_PI)?;
    // SAFETY: the descriptor is open, and the kernel reads and writes one `ifreq`, which lives
    // until the call returns.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
    ensure!(done == 0, "TUNSETIFF: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is open, and this request takes a number and no pointer.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, 0_u64) };
    ensure!(
        done == 0,
        "TUNSETOFFLOAD: {}",
        std::io::Error::last_os_error()
    );
    Ok(file)
}

/// Carries packets between a node and one peer until the device is gone. The time to live and
/// checksums are left as they are, which only makes it faster.
fn carry(node: &Node, source: Ipv4Addr, peer: Ipv4Addr) -> Result<()> {
    let (device, socket) =
        node.enter(|| anyhow::Ok((open(DEVICE)?, UdpSocket::bind((source, PORT))?)))??;
    let (device, socket) = (Arc::new(device), Arc::new(socket));
    let (reader, sender) = (Arc::clone(&device), Arc::clone(&socket));
    // Each ends with the first error: that of the device when the lab ends it.
    thread::spawn(move || {
        let mut packet = [0; 2_000];
        while let Ok(length) = (&*reader).read(&mut packet) {
            let _ = sender.send_to(&packet[..length], (peer, PORT));
        }
        let _ = sender.send_to(&[], (source, PORT));
    });
    thread::spawn(move || {
        let mut packet = [0; 2_000];
        while let Ok(length @ 1..) = socket.recv(&mut packet) {
            let _ = (&*device).write(&packet[..length]);
        }
    });
    Ok(())
}

#[test]
fn the_process_against_one_system_call_for_each_packet() -> Result<()> {
    let cluster = cluster("udp-speed")?;
    let [from, to, _] = &cluster.pods;
    let rate = |_| Ok(tcp_stream(from, to, to.ip(), SECONDS, None)?.bits_per_second / 1e6);
    let ours: Vec<f64> = (0..RUNS).map(rate).collect::<Result<_>>()?;

    // The devices stay, with addresses and routes.
    let processes = cluster.agents.iter().map(pid).collect::<Result<Vec<_>>>()?;
    cluster
        .agents
        .iter()
        .try_for_each(Agent::sigterm_and_wait)?;
    for (node, process) in cluster.net.nodes().iter().zip(processes) {
        node.sh(&format!("kill -9 {process}"))?;
    }
    let [a, b] = [
        Ipv4Addr::new(192, 168, 1, 11),
        Ipv4Addr::new(192, 168, 1, 12),
    ];
    eventually("free devices", Duration::from_secs(10), || {
        let free = |node: &Node| node.enter(|| open(DEVICE).map(drop))?;
        free(&cluster.a).and_then(|()| free(&cluster.b))
    })?;
    carry(&cluster.a, a, b)?;
    carry(&cluster.b, b, a)?;
    from.wait_ping(to.ip())?;
    let plain: Vec<f64> = (0..RUNS).map(rate).collect::<Result<_>>()?;
    let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    let (best_ours, best_plain) = (best(&ours), best(&plain));
    println!("Mbit/s: {ours:.0?}; one system call for each packet: {plain:.0?}");
    println!("ratio of the best: {:.2}", best_ours / best_plain);
    for node in [&cluster.a, &cluster.b] {
        node.sh(&format!("ip link delete {DEVICE}"))
            .context("the end of the plain processes")?;
    }
    let Some(stock) = stock_rates(&cluster, rate)? else {
        return Ok(());
    };
    println!(
        "stock flannel: {stock:.0?}; ratio of the best: {:.2}",
        best_ours / best(&stock)
    );
    Ok(())
}

/// The rates with processes of stock flannel on both nodes, if there is a binary.
fn stock_rates(cluster: &Cluster, rate: impl Fn(u32) -> Result<f64>) -> Result<Option<Vec<f64>>> {
    let Some(binary) = StockBinary::find("the rate of stock flannel's own process")? else {
        return Ok(None);
    };
    let processes = [&cluster.a, &cluster.b].map(|node| binary.start(node, &cluster.endpoint()));
    let processes = processes.into_iter().collect::<Result<Vec<_>>>()?;
    cluster.pods[0].wait_ping(cluster.pods[1].ip())?;
    let rates = (0..RUNS).map(rate).collect::<Result<_>>()?;
    processes.into_iter().try_for_each(StockProcess::end)?;
    Ok(Some(rates))
}
