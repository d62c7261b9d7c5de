//! Routes by nexthop objects: from when on, whose they are, and what becomes of them.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent, ChildGuard, Node, StockNode, TwoNodes,
    cluster::{DIRECT_ROUTING, VXLAN},
    eventually,
};
use serde_json::Value;

/// The limit for repairs. Events announce foreign changes; the full resync runs only every 30 s.
const SECONDS: Duration = Duration::from_secs(10);
/// Peers from which on the agents here use objects; below half of it no more.
const FROM: u8 = 4;

/// Node `a` with a ready agent.
fn start(name: &str, config: &str) -> Result<(TwoNodes, Agent)> {
    let pair = TwoNodes::new(name, config)?;
    let own = StockNode::vxlan(85, "192.168.1.11", "02:00:00:00:00:05");
    pair.etcd.put(&own.key(), &own.value(), None)?;
    let agent = pair
        .a
        .ready_agent(pair.options()?.flag(&format!("--nexthops-from={FROM}")))?;
    Ok((pair, agent))
}

/// The first `count` peers, from `10.244.10.0/24` on.
fn peers(count: u8) -> Vec<StockNode> {
    let peer = |n: u8| {
        StockNode::vxlan(
            n,
            &format!("192.168.1.{}", 100 + n),
            &format!("02:00:00:00:00:{n:02x}"),
        )
    };
    (10..10 + count).map(peer).collect()
}

fn number(third: u8) -> u32 {
    u32::from_be_bytes([10, 244, third, 0])
}

/// The numbers of all objects.
fn objects(node: &Node) -> Result<BTreeSet<u64>> {
    let objects: Vec<Value> = node.json(&["ip", "-j", "nexthop", "show"])?;
    Ok(objects
        .iter()
        .filter_map(|object| object["id"].as_u64())
        .collect())
}

/// The numbers by which the routes to the peers are made, in order; zero for a plain one.
fn routes(node: &Node) -> Result<Vec<u64>> {
    let routes: Vec<Value> = node.json(&[
        "ip",
        "-j",
        "route",
        "show",
        "root",
        "10.244.0.0/16",
        "type",
        "unicast",
    ])?;
    Ok(routes
        .iter()
        .map(|route| route["nhid"].as_u64().unwrap_or(0))
        .collect())
}

fn expected(count: u8) -> Vec<u64> {
    (10..10 + count).map(|third| number(third).into()).collect()
}

/// Waits until the node has `count` routes, all by nexthop objects or all plain, and no other
/// object.
fn settles(node: &Node, count: u8, by_objects: bool) -> Result<()> {
    let expected = if by_objects {
        expected(count)
    } else {
        vec![0; count.into()]
    };
    eventually(
        &format!("{count} routes, by objects: {by_objects}"),
        SECONDS,
        || {
            let (routes, objects) = (routes(node)?, objects(node)?);
            ensure!(routes == expected, "{routes:?}");
            ensure!(
                objects == routes.iter().copied().filter(|id| *id != 0).collect(),
                "{objects:?} {routes:?}"
            );
            Ok(())
        },
    )
}

/// Records what the kernel announces from now on, as `ip monitor` prints it.
fn monitor(node: &Node) -> Result<ChildGuard> {
    let child = node.spawn(
        "monitor",
        [
            "stdbuf", "-oL", "ip", "monitor", "nexthop", "route", "neigh",
        ],
    )?;
    // The monitor listens once it reports a change.
    eventually("a monitor that listens", SECONDS, || {
        node.sh("ip route add 192.0.2.0/24 dev lo")?;
        node.sh("ip route del 192.0.2.0/24 dev lo")?;
        ensure!(child.log().contains("192.0.2.0/24"), "{}", child.log());
        Ok(())
    })?;
    Ok(child)
}

#[test]
fn objects_are_used_from_a_number_of_peers_on_and_below_half_of_it_no_more() -> Result<()> {
    let (pair, _agent) = start("border", VXLAN)?;
    let peers = peers(FROM);
    pair.etcd.put_leases(&peers[..3])?;
    settles(&pair.a, 3, false)?;
    let monitor = monitor(&pair.a)?;
    pair.etcd.put_leases(&peers[3..])?;
    settles(&pair.a, 4, true)?;
    pair.etcd.delete_leases(&peers[2..])?;
    settles(&pair.a, 2, true)?;
    pair.etcd.delete_leases(&peers[1..])?;
    settles(&pair.a, 1, false)?;
    // The peer that stayed had a route at every moment.
    let log = monitor.log();
    let of_it: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("10.244.10.0/24"))
        .collect();
    assert_eq!(of_it.len(), 2, "made by an object, and plain again: {log}");
    assert!(of_it.iter().all(|line| !line.contains("Deleted")), "{log}");
    Ok(())
}

#[test]
fn one_peer_more_is_one_peers_objects() -> Result<()> {
    let (pair, _agent) = start("one-more", VXLAN)?;
    let peers = peers(FROM + 3);
    let (last, others) = peers.split_last().expect("seven peers");
    pair.etcd.put_leases(others)?;
    settles(&pair.a, FROM + 2, true)?;
    let monitor = monitor(&pair.a)?;
    last.put(&pair.etcd)?;
    settles(&pair.a, FROM + 3, true)?;
    let log = monitor.log();
    // Those of the monitor, of another device, and of the device's own IPv6 address, which the
    // kernel takes into use a second or two after the device came.
    let of_others = |line: &&str| {
        ["192.0.2.0/24", "eth0", "fe80::"]
            .iter()
            .any(|part| line.contains(part))
    };
    let changes: Vec<&str> = log.lines().filter(|line| !of_others(line)).collect();
    assert_eq!(
        changes.len(),
        4,
        "a neighbour, an FDB entry, an object, a route: {log}"
    );
    assert!(
        changes
            .iter()
            .all(|line| line.contains("10.244.16.0") || line.contains("192.168.1.116")),
        "{log}"
    );
    Ok(())
}

#[test]
fn changed_nexthop_objects_are_repaired_within_seconds() -> Result<()> {
    let (pair, agent) = start("object-drift", VXLAN)?;
    pair.etcd.put_leases(&peers(FROM))?;
    settles(&pair.a, FROM, true)?;
    let id = number(11);
    let changes = [
        // The kernel takes the route with it, and does not say so.
        format!("ip nexthop del id {id}"),
        format!("ip nexthop replace id {id} via 10.244.77.0 dev flannel.1 onlink proto 191"),
        "ip route del 10.244.11.0/24".to_owned(),
        "ip route replace 10.244.11.0/24 via 10.244.11.0 dev flannel.1 onlink".to_owned(),
        "ip nexthop add id 183782656 via 10.244.77.0 dev flannel.1 onlink proto 191".to_owned(),
        "ip link set flannel.1 down".to_owned(),
    ];
    pair.a.expect_repairs(&changes, || {
        Ok([
            pair.a.sh("ip -j nexthop show")?.stdout,
            pair.a.sh("ip -j route show")?.stdout,
        ])
    })?;
    agent.wait_ready_is(true)?;
    Ok(())
}

#[test]
fn objects_of_others_stay_and_a_number_that_is_taken_costs_the_object_alone() -> Result<()> {
    let (pair, agent) = start("object-taken", VXLAN)?;
    let taken = number(11);
    let of_others = |node: &Node| -> Result<String> {
        let show = |id| Ok(node.sh(&format!("ip -d nexthop show id {id}"))?.stdout);
        [1, 2, taken].into_iter().map(show).collect()
    };
    for foreign in [
        "ip nexthop add id 1 via 192.168.1.12 dev eth0".to_owned(),
        "ip nexthop add id 2 group 1".to_owned(),
        format!("ip nexthop add id {taken} via 192.168.1.12 dev eth0 proto static"),
        "ip route add 10.244.200.0/24 nhid 1".to_owned(),
    ] {
        pair.a.sh(&foreign)?;
    }
    let before = of_others(&pair.a)?;
    pair.etcd.put_leases(&peers(FROM))?;
    let mut expected = expected(FROM);
    expected[1] = 0;
    expected.push(1);
    eventually("a plain route for one peer", SECONDS, || {
        let routes = routes(&pair.a)?;
        ensure!(routes == expected, "{routes:?}");
        Ok(())
    })?;
    let status = agent.wait_ready_is(true)?;
    assert!(
        status["dirty"]
            .to_string()
            .contains(&format!("nexthop {taken}")),
        "{}",
        status["dirty"]
    );
    assert_eq!(of_others(&pair.a)?, before);
    pair.a.sh(&format!("ip nexthop del id {taken}"))?;
    expected[1] = taken.into();
    eventually(
        "the object when its number is free",
        Duration::from_secs(40),
        || {
            let routes = routes(&pair.a)?;
            ensure!(routes == expected, "{routes:?}");
            Ok(())
        },
    )
}

/// Also where the kernel does not say where an object leads.
#[test]
fn a_fresh_process_takes_them_over() -> Result<()> {
    let (pair, agent) = start("object-restart", VXLAN)?;
    let peers = peers(FROM);
    pair.etcd.put_leases(&peers)?;
    settles(&pair.a, FROM, true)?;
    // Fewer than it takes to begin with objects, and enough to stay with them.
    pair.etcd.delete_leases(&peers[3..])?;
    settles(&pair.a, 3, true)?;
    for compatible in [1, 0] {
        pair.a.sh(&format!(
            "sysctl -qw net.ipv4.nexthop_compat_mode={compatible}"
        ))?;
        agent.kill9()?;
        let monitor = monitor(&pair.a)?;
        agent.restart()?;
        agent.wait_ready()?;
        agent.wait_peers(3)?;
        settles(&pair.a, 3, true)?;
        let log = monitor.log();
        assert!(
            !log.lines().any(|line| line.contains("10.244.1")),
            "nothing was made anew: {log}"
        );
    }
    Ok(())
}

#[test]
fn cleanup_leaves_none() -> Result<()> {
    let (pair, agent) = start("object-cleanup", DIRECT_ROUTING)?;
    pair.a.sh("ip nexthop add id 1 via 192.168.1.12 dev eth0")?;
    let mut leases = peers(FROM);
    // Two behind a router, through the tunnel.
    for lease in &mut leases[2..] {
        let end = lease.v4.as_mut().expect("an IPv4 end");
        end.public_ip = end.public_ip.replace("192.168.1.", "192.168.7.");
    }
    pair.a.sh("ip route add 192.168.7.0/24 via 192.168.1.12")?;
    pair.etcd.put_leases(&leases)?;
    eventually("direct and tunnel routes by objects", SECONDS, || {
        let routes = routes(&pair.a)?;
        ensure!(routes == expected(FROM), "{routes:?}");
        Ok(())
    })?;
    pair.a.sh("ip route del 192.168.7.0/24")?;
    agent.sigterm_and_wait()?;
    let said = agent.cli(&["cleanup"])?.stdout;
    assert!(
        said.contains(&format!("remove nexthop {}: done", number(10))),
        "{said}"
    );
    assert_eq!(objects(&pair.a)?, BTreeSet::from([1]));
    assert_eq!(routes(&pair.a)?, [0; 0]);
    Ok(())
}
