//! Attachment by clsact and by TCX: the change from one to the other under load, coexistence with
//! foreign programs, and the repair after another process removed something.

use std::time::Duration;

use anyhow::{Result, ensure};
use aya::programs::{LinkOrder, SchedClassifier, links::FdLink, tc::TcAttachOptions};
use flannel_tests::{
    Agent, Pair, eventually,
    kernel::hooks::{self, HOOKS, Side},
};
use serde_json::Value;

/// Between the agent's looks at everything there is, and some.
const RESYNC: Duration = Duration::from_secs(35);

/// Returns the attach type that the agent reports in its status.
fn attached_by(agent: &Agent) -> Result<Value> {
    Ok(agent.status()?["mode"]["attach"].clone())
}

/// Fails unless every program runs exactly once, in this way and not in the other.
fn expect_only(pair: &Pair, kind: &str) -> Result<()> {
    for (program, device, side) in HOOKS {
        let (tcx, filters) = (
            hooks::tcx(&pair.net.a, device, side)?,
            hooks::filters(&pair.net.a, device, side)?,
        );
        let (there, elsewhere) = if kind == "tcx" {
            (tcx, filters)
        } else {
            (filters, tcx)
        };
        ensure!(
            there == [program] && elsewhere.is_empty(),
            "{device} {side}: {kind} {there:?}, else {elsewhere:?}"
        );
    }
    Ok(())
}

#[test]
fn clsact_carries_traffic_and_switches_without_loss() -> Result<()> {
    let pair = Pair::with_flags("clsact", &["--attach=clsact"])?;
    assert_eq!(attached_by(&pair.sender)?, "clsact");
    expect_only(&pair, "clsact")?;
    let run = pair.stream(20_000, Duration::from_mins(1))?;
    pair.wait_encapsulated(4_000)?;
    for _ in 0..3 {
        pair.set_mode("kernel")?;
        let before = pair.encapsulated()?;
        pair.wait_received(4_000)?;
        assert_eq!(pair.encapsulated()?, before, "encapsulated in mode kernel");
        pair.set_mode("encap")?;
        pair.wait_encapsulated(4_000)?;
    }
    run.stop()?.expect_complete()
}

/// The devices have a clsact qdisc already: the kernel stops a device for a moment to add the first
/// one, and whatever is sent then is lost, `tc qdisc add` by hand included.
#[test]
fn a_change_of_way_under_load_loses_nothing_and_leaves_one_of_each() -> Result<()> {
    if hooks::lacks_tcx("the change between TCX and clsact under load") {
        return Ok(());
    }
    let pair = Pair::with_flags("handover", &["--attach=tcx"])?;
    for device in ["eth0", "flannel.1"] {
        pair.net
            .a
            .sh(&format!("tc qdisc add dev {device} clsact"))?;
    }
    let run = pair.stream(20_000, Duration::from_mins(1))?;
    pair.wait_encapsulated(2_000)?;
    let mut agent = pair.sender.clone();
    for kind in ["clsact", "tcx", "clsact"] {
        agent.sigterm_and_wait()?;
        let options = pair.options()?.flag("--datapath=encap");
        let options = options.flag(&format!("--attach={kind}"));
        agent = pair.net.a.agent(options)?;
        agent.wait_ready()?;
        assert_eq!(attached_by(&agent)?, kind);
        // The links of the former agent go once the new ones are there.
        eventually("one program at each hook", Duration::from_secs(5), || {
            expect_only(&pair, kind)
        })?;
        pair.wait_encapsulated(2_000)?;
    }
    run.stop()?.expect_complete()
}

/// Adds foreign filters at both sides of `eth0`, ahead of the agent's: they copy every packet to a
/// device and let it go on.
fn add_mirrors(pair: &Pair) -> Result<()> {
    for (side, device) in [(Side::Ingress, "copy-in"), (Side::Egress, "copy-out")] {
        pair.net.a.sh(&format!(
            "ip link add {device} type veth peer name {device}-end"
        ))?;
        pair.net.a.sh(&format!("ip link set {device} up"))?;
        pair.net.a.sh(&format!("ip link set {device}-end up"))?;
        pair.net.a.sh(&format!(
            "tc filter add dev eth0 {side} prio 5 protocol ip u32 match u32 0 0 action mirred \
             egress mirror dev {device} continue"
        ))?;
    }
    Ok(())
}

/// Packets the filters of others copied, in and out.
fn copied(pair: &Pair) -> Result<[u64; 2]> {
    let of = |device: &str| pair.net.a.device_counter(device, "tx_packets");
    Ok([of("copy-in")?, of("copy-out")?])
}

fn filters_of_others_run_too(name: &str, kind: &str) -> Result<()> {
    let pair = Pair::with_flags(name, &[&format!("--attach={kind}")])?;
    if kind == "tcx" {
        pair.net.a.sh("tc qdisc add dev eth0 clsact")?;
    }
    add_mirrors(&pair)?;
    mirrors_and_ours_see(&pair)?;
    pair.sender.sigterm_and_wait()?;
    pair.sender.restart()?;
    pair.sender.wait_ready()?;
    mirrors_and_ours_see(&pair)?;
    pair.sender.sigterm_and_wait()?;
    pair.sender.cli(&["cleanup"])?;
    let before = copied(&pair)?;
    pair.net.a.sh("ping -n -c 3 -i 0.01 -W 2 192.168.2.13")?;
    let now = copied(&pair)?;
    assert!(
        now[0] >= before[0] + 3 && now[1] >= before[1] + 3,
        "{before:?}, {now:?}"
    );
    Ok(())
}

/// Packets the programs encapsulate pass the filters of others, and what comes in passes both.
fn mirrors_and_ours_see(pair: &Pair) -> Result<()> {
    assert_eq!(hooks::misplaced(&pair.net.a)?, [""; 0]);
    let good = || pair.sender.counted("from_underlay", "tunnel_good");
    let (before, tunnel) = (copied(pair)?, good()?);
    let run = pair.stream(2_000, Duration::from_secs(30))?;
    pair.wait_encapsulated(2_000)?;
    let report = run.stop()?;
    report.expect_complete()?;
    pair.far.ping(pair.near.ip())?;
    let now = copied(pair)?;
    ensure!(
        now[1] - before[1] >= report.sent,
        "{} of {} packets copied",
        now[1] - before[1],
        report.sent
    );
    ensure!(
        now[0] > before[0] && good()? >= tunnel + 3,
        "in: {before:?}, {now:?}, good {tunnel} and {}",
        good()?
    );
    Ok(())
}

#[test]
fn filters_of_others_stay_and_run_next_to_clsact() -> Result<()> {
    filters_of_others_run_too("beside-clsact", "clsact")
}

#[test]
fn filters_of_others_stay_and_run_next_to_tcx() -> Result<()> {
    if hooks::lacks_tcx("filters of others with programs attached by TCX") {
        return Ok(());
    }
    filters_of_others_run_too("beside-tcx", "tcx")
}

/// A foreign TCX program, first in the chain; the test takes one of the agent's and attaches it
/// where the agent never does.
#[test]
fn a_tcx_program_of_others_stays_and_runs() -> Result<()> {
    if hooks::lacks_tcx("a TCX program of others") {
        return Ok(());
    }
    let pair = Pair::with_flags("tcx-beside", &["--attach=tcx"])?;
    let link = pair.net.a.enter(|| -> Result<FdLink> {
        let mut program =
            SchedClassifier::from_pin("/sys/fs/bpf/flannel/v2/programs/from_underlay")?;
        let first = TcAttachOptions::TcxOrder(LinkOrder::first());
        let id = program.attach_with_options("eth0", Side::Egress.attach_type(), first)?;
        Ok(program.take_link(id)?.try_into()?)
    })??;
    let both = ["from_underlay", "to_underlay"];
    assert_eq!(hooks::tcx(&pair.net.a, "eth0", Side::Egress)?, both);
    // At the egress it sees packets that go to another node.
    let seen = || pair.sender.counted("from_underlay", "not_for_us");
    let before = seen()?;
    let run = pair.stream(2_000, Duration::from_secs(30))?;
    pair.wait_encapsulated(2_000)?;
    let report = run.stop()?;
    report.expect_complete()?;
    assert!(
        seen()? - before >= report.sent,
        "{} of {} packets seen",
        seen()? - before,
        report.sent
    );
    pair.sender.kill9()?;
    pair.sender.restart()?;
    pair.sender.wait_ready()?;
    assert_eq!(hooks::tcx(&pair.net.a, "eth0", Side::Egress)?, both);
    drop(link);
    eventually("the other program is gone", Duration::from_secs(5), || {
        let programs = hooks::tcx(&pair.net.a, "eth0", Side::Egress)?;
        ensure!(programs == both[1..], "{programs:?}");
        Ok(())
    })?;
    Ok(())
}

/// Returns the agent's state of the tunnel device: its MAC address, its addresses, its routes, and
/// its neighbour and FDB entries.
fn tunnel_device(pair: &Pair) -> Result<(Value, [String; 4])> {
    let a = &pair.net.a;
    let link: Vec<Value> = a.json(&["ip", "-j", "link", "show", "dev", "flannel.1"])?;
    let lines = [
        "ip -4 address show dev flannel.1",
        "ip -4 route show dev flannel.1",
        "ip neigh show dev flannel.1 nud permanent",
        "bridge fdb show dev flannel.1",
    ];
    // The first line of the addresses holds the device's index, which is another.
    let texts = lines.map(|line| {
        let text = a.sh(line).map(|output| output.stdout);
        text.map(|text| {
            text.lines()
                .filter(|line| !line.contains("flannel.1:"))
                .collect::<Vec<_>>()
                .join("\n")
        })
    });
    let [address, route, neighbour, fdb] = texts;
    Ok((
        link[0]["address"].clone(),
        [address?, route?, neighbour?, fdb?],
    ))
}

fn a_deleted_device_comes_back(kind: &str) -> Result<()> {
    let pair = Pair::with_flags(&format!("deleted-{kind}"), &[&format!("--attach={kind}")])?;
    let before = tunnel_device(&pair)?;
    assert!(before.1.iter().all(|text| !text.is_empty()), "{before:?}");
    let index = hooks::ifindex(&pair.net.a, "flannel.1")?;
    pair.net.a.sh("ip link delete flannel.1")?;
    eventually("the same device", Duration::from_secs(10), || {
        ensure!(
            hooks::ifindex(&pair.net.a, "flannel.1")? != index,
            "still there"
        );
        let now = tunnel_device(&pair)?;
        ensure!(now == before, "{now:?}\ninstead of\n{before:?}");
        expect_only(&pair, kind)
    })?;
    let taken = pair.encapsulated()?;
    pair.near.ping(pair.far.ip())?;
    pair.far.ping(pair.near.ip())?;
    assert!(pair.encapsulated()? > taken);
    Ok(())
}

#[test]
fn a_deleted_tunnel_device_comes_back_with_all_on_it_and_its_mac_tcx() -> Result<()> {
    if hooks::lacks_tcx("a deleted device with programs attached by TCX") {
        return Ok(());
    }
    a_deleted_device_comes_back("tcx")
}

#[test]
fn a_deleted_tunnel_device_comes_back_with_all_on_it_and_its_mac_clsact() -> Result<()> {
    a_deleted_device_comes_back("clsact")
}

/// The kernel sends no event; the agent finds out at its next resync. That may come in between, so
/// the agent's log shows that programs were taken away.
fn comes_back_with_the_resync(
    pair: &Pair,
    kind: &str,
    take_away: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let attached = || pair.sender.log_count("attached program=");
    let before = attached();
    take_away()?;
    pair.near.ping(pair.far.ip())?;
    eventually("programs in their places", RESYNC, || {
        ensure!(attached() > before, "none was attached again");
        expect_only(pair, kind)
    })?;
    pair.wait_encapsulated_while_pinging()
}

#[test]
fn tcx_links_whose_pins_are_gone_come_back_with_the_resync() -> Result<()> {
    if hooks::lacks_tcx("TCX links whose pins are gone") {
        return Ok(());
    }
    let pair = Pair::with_flags("unpinned", &["--attach=tcx"])?;
    let links = pair.net.a.outside_path("/sys/fs/bpf/flannel/v2/links");
    comes_back_with_the_resync(&pair, "tcx", || {
        // A resync may come in between, and pins them again.
        eventually("no program", Duration::from_secs(20), || {
            for entry in std::fs::read_dir(&links)? {
                std::fs::remove_file(entry?.path())?;
            }
            let wrong = hooks::misplaced(&pair.net.a)?;
            ensure!(wrong.len() == HOOKS.len(), "{wrong:?}");
            Ok(())
        })
    })
}

/// A link detached by force stays pinned and does nothing.
#[test]
fn a_tcx_link_detached_by_force_comes_back_with_the_resync() -> Result<()> {
    if hooks::lacks_tcx("a TCX link detached by force") {
        return Ok(());
    }
    let pair = Pair::with_flags("forced", &["--attach=tcx"])?;
    if pair
        .net
        .a
        .command(["bpftool", "version"])
        .any_code()
        .run()?
        .code
        != 0
    {
        use std::io::Write as _;
        writeln!(
            std::io::stderr(),
            "NOT RUN: detaching a link by force: there is no bpftool"
        )?;
        return Ok(());
    }
    let index = hooks::ifindex(&pair.net.a, "flannel.1")?;
    comes_back_with_the_resync(&pair, "tcx", || {
        let link = format!("/sys/fs/bpf/flannel/v2/links/to_tunnel-{index}");
        pair.net
            .a
            .sh(&format!("bpftool link detach pinned {link}"))
            .map(drop)
    })
}

#[test]
fn a_clsact_qdisc_taken_away_comes_back_with_the_resync() -> Result<()> {
    let pair = Pair::with_flags("noqdisc", &["--attach=clsact"])?;
    comes_back_with_the_resync(&pair, "clsact", || {
        ["eth0", "flannel.1"].iter().try_for_each(|device| {
            let delete = format!("tc qdisc delete dev {device} clsact");
            pair.net.a.sh(&delete).map(drop)
        })
    })
}
