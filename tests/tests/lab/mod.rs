//! The lab's own test: it builds nodes and pods, lets traffic through a tunnel made by hand, sees
//! what was left behind, and leaves nothing itself.

use std::{
    env, fs,
    io::{self, BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Result, ensure};
use flannel_tests::{
    Lab, Node, StockNode,
    agent::snapshot::Snapshot,
    cluster::topology::{ROUTER, Three, Two},
    eventually,
    lab::record::start_time,
    load::{
        UdpLoad, UdpRun,
        iperf::tcp_stream,
        rr::{Protocol, rr},
        udp_stream,
    },
    stock,
};

/// Kernel vxlan as flannel sets it up: node number `number` at `local`, and its one peer.
fn tunnel_by_hand(from: &Node, number: u8, local: &str, peer: u8, peer_ip: &str) -> Result<()> {
    let mac = |number: u8| format!("02:00:00:00:00:{number:02x}");
    stock::device(from, number, local, &mac(number))?;
    stock::tunnel_peer(from, &StockNode::vxlan(peer, peer_ip, &mac(peer)))
}

#[test]
fn pods_of_two_nodes_talk_through_a_tunnel_made_by_hand() -> Result<()> {
    let lab = Lab::new("hand")?;
    let net = Three::new(&lab)?;
    tunnel_by_hand(&net.a, 1, "192.168.1.11", 3, "192.168.2.13")?;
    tunnel_by_hand(&net.c, 3, "192.168.2.13", 1, "192.168.1.11")?;
    let (one, two) = (net.a.add_pod("p1")?, net.c.add_pod("p1")?);
    one.ping(two.ip())?;

    let report = udp_stream(&one, &two, 2000, Duration::from_secs(1))?;
    assert_eq!(
        (report.sent, report.lost.as_slice(), report.duplicated),
        (2000, [].as_slice(), 0),
        "{report:?}"
    );

    // A loss is seen as one: the route is away for a part of the stream.
    let load = UdpLoad {
        pps: 2000,
        duration: Duration::from_secs(20),
        payload: 64,
    };
    let run = UdpRun::start(&one, &two, two.ip(), load)?;
    let counted = |name: &str| -> Result<u64> {
        Ok(fs::read_to_string(
            net.c
                .outside_path(format!("/sys/class/net/flannel.1/statistics/{name}")),
        )?
        .trim()
        .parse()?)
    };
    net.c.sh("ip link set flannel.1 down")?;
    let stopped_at = counted("rx_packets")?;
    net.c.sh("ip link set flannel.1 up")?;
    eventually("traffic after the gap", Duration::from_secs(5), || {
        counted("rx_packets").ok().filter(|n| *n > stopped_at)
    })?;
    let report = run.stop()?;
    assert!(report.lost_count() > 0 && report.received > 0, "{report:?}");
    assert_eq!(report.receiver_drops, 0, "{report:?}");
    Ok(())
}

#[test]
fn latency_and_streams_are_measured() -> Result<()> {
    let lab = Lab::new("speed")?;
    let net = Two::new(&lab)?;
    let at = "192.168.1.12".parse()?;
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let report = rr(&net.a, &net.b, at, protocol, Duration::from_millis(200))?;
        assert!(
            report.transactions > 0 && report.lost == 0 && report.min <= report.p99,
            "{report:?}"
        );
    }
    assert!(tcp_stream(&net.a, &net.b, at, 1, None)?.bits_per_second > 0.0);
    Ok(())
}

#[test]
fn a_snapshot_shows_what_was_left_behind() -> Result<()> {
    let lab = Lab::new("snap")?;
    let node = lab.node("n")?;
    let before = Snapshot::of(&node)?;
    node.sh("ip link add left0 type veth peer name left1")?;
    node.sh("ip link set left0 up")?;
    node.sh("ip route add 10.9.0.0/16 dev left0")?;
    fs::create_dir(node.outside_path("/sys/fs/bpf/left"))?;
    let changes = before.changes(&Snapshot::of(&node)?);
    for part in ["+ address:", "10.9.0.0/16", "+ bpffs: /left"] {
        assert!(changes.contains(part), "{part} in:\n{changes}");
    }
    node.sh("ip link delete left0")?;
    fs::remove_dir(node.outside_path("/sys/fs/bpf/left"))?;
    assert_eq!(before.changes(&Snapshot::of(&node)?), "");
    Ok(())
}

#[test]
fn etcd_keeps_its_data_over_a_stop_and_can_be_paused() -> Result<()> {
    let lab = Lab::new("etcd")?;
    let net = Three::new(&lab)?;
    let etcd = lab.etcd(&net.r)?;
    net.c.sh(&format!("ping -n -c 1 -W 2 {ROUTER}"))?;
    etcd.put("/t/a", "1", None)?;
    etcd.put("/t/b", "2", Some(60))?;
    etcd.pause()?;
    etcd.resume()?;
    etcd.stop()?;
    assert!(etcd.get("/t/a").is_err());
    etcd.start()?;
    assert_eq!(
        etcd.list("/t/")?,
        [("/t/a", "1"), ("/t/b", "2")].map(|(k, v)| (k.to_owned(), v.to_owned()))
    );
    assert!(etcd.delete("/t/a")?);
    assert_eq!(etcd.get("/t/a")?, None);
    Ok(())
}

#[test]
fn a_command_that_fails_or_hangs_says_which() -> Result<()> {
    let lab = Lab::new("cmd")?;
    let node = lab.node("n")?;
    let error = node
        .sh("ip link show nosuch0")
        .expect_err("no such device")
        .to_string();
    assert!(
        error.contains("n: ip link show nosuch0") && error.contains("does not exist"),
        "{error}"
    );
    let hang = node
        .command(["sleep", "60"])
        .limit(Duration::from_millis(100));
    let error = hang.run().expect_err("a limit").to_string();
    assert!(error.contains("limit"), "{error}");
    assert_eq!(node.command(["cat"]).input("text").run()?.stdout, "text");
    Ok(())
}

#[test]
fn a_dropped_lab_is_gone() -> Result<()> {
    let lab = Lab::new("gone")?;
    let node = lab.node("n")?;
    let child = node.spawn("sleep", ["sleep", "600"])?;
    let (dir, pids) = (lab.dir().to_owned(), Recorded::read(&lab)?);
    drop(lab);
    assert!(!dir.exists());
    assert!(!child.is_running());
    assert_eq!(pids.alive(), [""; 0]);
    Ok(())
}

const VICTIM: &str = "FLANNEL_LAB_VICTIM";

/// Not a test by itself: the process that [`a_lab_whose_process_is_killed_ends`] kills.
#[test]
#[ignore = "runs inside another test"]
fn victim() -> Result<()> {
    if env::var_os(VICTIM).is_none() {
        return Ok(());
    }
    let lab = Lab::new("victim")?;
    let node = lab.node("n")?;
    let _child = node.spawn("sleep", ["sleep", "600"])?;
    println!("lab {}", lab.dir().display());
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

#[test]
fn a_lab_whose_process_is_killed_ends() -> Result<()> {
    let mut command = Command::new(env::current_exe()?);
    command
        .args(["--exact", "lab::victim", "--ignored", "--nocapture"])
        .env(VICTIM, "1");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let dir = stdout
        .lines()
        .map_while(Result::ok)
        .find_map(|line| Some(line.split_once("lab ")?.1.to_owned()));
    let dir = dir.expect("the victim's lab");
    let pids = Recorded {
        pids: fs::read_to_string(format!("{dir}/pids"))?,
    };
    assert_eq!(pids.alive().len(), 2, "a holder and a child");
    child.kill()?;
    child.wait()?;
    eventually("end of the processes", Duration::from_secs(30), || {
        ensure!(pids.alive().is_empty(), "{:?}", pids.alive());
        Ok(())
    })?;
    // What is left is the record, by which `cargo xtask clean-lab` knows it.
    fs::remove_dir_all(dir)?;
    Ok(())
}

/// The processes of a lab's record.
struct Recorded {
    pids: String,
}

impl Recorded {
    fn read(lab: &Lab) -> io::Result<Self> {
        Ok(Self {
            pids: fs::read_to_string(lab.dir().join("pids"))?,
        })
    }

    /// Returns the lines, except the owner's, of recorded processes that are still alive.
    fn alive(&self) -> Vec<&str> {
        self.pids
            .lines()
            .skip(1)
            .filter(|line| Self::is_alive(line).expect("a line of the record"))
            .collect()
    }

    fn is_alive(line: &str) -> Option<bool> {
        let mut words = line.split(' ');
        let (pid, start): (u32, u64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        // A process that has ended has no program, although its parent may not have asked how.
        let has_program = fs::read_link(format!("/proc/{pid}/exe")).is_ok();
        Some(has_program && start_time(pid).is_ok_and(|now| now == start))
    }
}
