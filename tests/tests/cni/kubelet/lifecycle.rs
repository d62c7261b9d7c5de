//! One or two pods from ADD to DEL.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    agent_binary,
    cni::{DUAL, List, PLUGINS, STATE, Sandbox, V4, shipped},
    eventually,
};
use serde_json::{Value, json};

use super::{World, addresses};

#[test]
fn pods_come_talk_are_checked_and_go() -> Result<()> {
    for version in ["0.3.1", "0.4.0", "1.0.0"] {
        let world = World::new("cnilife", version, V4)?;
        let (one, two) = (
            world.runtime.sandbox("pod1")?,
            world.runtime.sandbox("pod2")?,
        );
        let first = world.list.add(&one, &Value::Null)?;
        let second = world.list.add(&two, &Value::Null)?;
        assert_eq!(first["cniVersion"], version);
        let to = addresses(&second).pop().context("an address")?;
        assert!(to.starts_with("10.244.7."), "{second}");
        world
            .runtime
            .inside(&one, &format!("ping -n -c 1 -W 2 {to}"))?;
        let link = world.runtime.inside(&one, "ip link show eth0")?.stdout;
        assert!(link.contains("mtu 1400"), "{link}");
        let routes = world.runtime.inside(&one, "ip route")?.stdout;
        for route in [
            "default via 10.244.7.1 dev eth0",
            "10.244.0.0/16 via 10.244.7.1 dev eth0",
        ] {
            assert!(routes.contains(route), "{route} in:\n{routes}");
        }
        let nat = world.runtime.node().sh("iptables -t nat -S")?.stdout;
        assert!(
            !nat.contains("MASQUERADE"),
            "the agent masquerades, and the bridge too:\n{nat}"
        );

        if version != "0.3.1" {
            world.list.check(&one, &Value::Null, &first)?;
            world.runtime.inside(&one, "ip route del 10.244.0.0/16")?;
            let error = world
                .list
                .check(&one, &Value::Null, &first)
                .expect_err("a route is gone")
                .to_string();
            assert!(error.contains("CHECK of flannel for pod1"), "{error}");
        }
        for (pod, result) in [(&one, &first), (&two, &second), (&one, &Value::Null)] {
            world.list.del(pod, &Value::Null, result)?;
        }
        world.runtime.expect_clean().context(version)?;
    }
    Ok(())
}

#[test]
fn both_families_reach_the_pods() -> Result<()> {
    let world = World::new("cnidual", "1.0.0", DUAL)?;
    let (one, two) = (
        world.runtime.sandbox("pod1")?,
        world.runtime.sandbox("pod2")?,
    );
    let (first, second) = (
        world.list.add(&one, &Value::Null)?,
        world.list.add(&two, &Value::Null)?,
    );
    let to = addresses(&second);
    ensure!(
        to.len() == 2 && to[1].starts_with("fd00:10:244:7::"),
        "{second}"
    );
    for address in &to {
        eventually("an answer", Duration::from_secs(10), || {
            world
                .runtime
                .inside(&one, &format!("ping -n -c 1 -W 1 {address}"))
        })?;
    }
    let routes = world.runtime.inside(&one, "ip -6 route")?.stdout;
    assert!(
        routes.contains("fd00:10:244::/56 via fd00:10:244:7::1"),
        "{routes}"
    );
    world.list.check(&one, &Value::Null, &first)?;
    for (pod, result) in [(&one, &first), (&two, &second)] {
        world.list.del(pod, &Value::Null, result)?;
    }
    world.runtime.expect_clean()
}

/// The list as `flannel-agent install` leaves it on a node that has the plugin `bandwidth`.
#[test]
fn pods_start_with_the_installed_list_and_those_that_ask_for_it_are_limited() -> Result<()> {
    let world = World::new("cnirate", "0.3.1", V4)?;
    let scratch = tempfile::tempdir()?;
    let [source, destination] =
        ["cni-conf.json", "10-flannel.conflist"].map(|name| scratch.path().join(name));
    fs::write(&source, shipped()?.to_string())?;
    let from = format!("--bandwidth-from={PLUGINS}");
    let paths = [&source, &destination].map(|path| path.display().to_string());
    let agent = agent_binary()?.display().to_string();
    world
        .runtime
        .node()
        .run([agent.as_str(), "install", &from, &paths[0], &paths[1]])?;
    let mut installed: Value = serde_json::from_str(&fs::read_to_string(&destination)?)?;
    let types: Vec<_> = installed["plugins"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|plugin| &plugin["type"])
        .collect();
    assert_eq!(types, ["flannel", "portmap", "bandwidth"]);

    let list = |installed: &Value| List::new(&world.runtime, "0.3.1", installed["plugins"].clone());
    let limits = || {
        Ok::<_, anyhow::Error>(
            world
                .runtime
                .node()
                .sh("tc qdisc show")?
                .stdout
                .matches("tbf")
                .count(),
        )
    };
    let (plain, limited) = (
        world.runtime.sandbox("plain")?,
        world.runtime.sandbox("limited")?,
    );
    let first = list(&installed)?.add(&plain, &Value::Null)?;
    assert_eq!(limits()?, 0, "a pod without annotations");
    // As the runtime passes the annotation kubernetes.io/ingress-bandwidth.
    installed["plugins"][2]["ingressRate"] = json!(1_000_000);
    installed["plugins"][2]["ingressBurst"] = json!(1_000_000);
    let second = list(&installed)?.add(&limited, &Value::Null)?;
    assert_eq!(limits()?, 1, "a pod with a limit");
    for (pod, result) in [(&plain, &first), (&limited, &second)] {
        list(&installed)?.del(pod, &Value::Null, result)?;
    }
    world.runtime.expect_clean()
}

/// The pod reaches itself by the node's address: through the port mapping, and back out of the
/// pod's port of the bridge.
#[test]
fn a_host_port_works_from_the_pod_itself_too() -> Result<()> {
    let world = World::new("cniport", "1.0.0", V4)?;
    let node = world.runtime.node();
    node.sh("ip link add eth0 type veth peer name uplink")?;
    node.sh("ip link set eth0 up")?;
    node.address("eth0", "192.0.2.1/24", None)?;
    let (one, two) = (
        world.runtime.sandbox("pod1")?,
        world.runtime.sandbox("pod2")?,
    );
    let mappings = json!([{ "hostPort": 8080, "containerPort": 5201, "protocol": "tcp" }]);
    let first = world.list.add(&one, &mappings)?;
    let second = world.list.add(&two, &Value::Null)?;
    let _server = node.spawn("iperf3", ["ip", "netns", "exec", "pod1", "iperf3", "-s"])?;
    for client in [&one, &two] {
        eventually(
            &format!("{} on the host port", client.id),
            Duration::from_secs(20),
            || {
                world.runtime.inside(
                    client,
                    "iperf3 -c 192.0.2.1 -p 8080 -n 1K --connect-timeout 1000",
                )
            },
        )?;
    }
    // The distribution's portmap looks for IPv6 rules too, whatever the pod has, and so refuses its
    // own CHECK.
    let alone = List::new(&world.runtime, "1.0.0", json!([shipped()?["plugins"][0]]))?;
    alone.check(&one, &mappings, &first)?;
    world.list.del(&one, &mappings, &first)?;
    world.list.del(&two, &Value::Null, &second)?;
    world.runtime.expect_clean()
}

#[test]
fn a_pod_from_before_a_reboot_can_be_deleted() -> Result<()> {
    let world = World::new("cniboot", "1.0.0", V4)?;
    let pod = world.runtime.sandbox("pod1")?;
    let result = world.list.add(&pod, &Value::Null)?;
    // A reboot takes the namespace, the bridge and what is in /run; some systems take the state
    // too.
    world.runtime.node().sh("ip netns delete pod1")?;
    world.runtime.node().sh("ip link delete cni0")?;
    fs::remove_file(world.runtime.node().outside_path("/run/flannel/subnet.env"))?;
    world.list.del(&pod, &Value::Null, &result)?;
    assert_eq!(
        (world.runtime.state().len(), world.runtime.leases().len()),
        (0, 0)
    );

    fs::remove_dir_all(world.runtime.node().outside_path("/var/lib/cni"))?;
    world.list.del(&pod, &Value::Null, &result)?;
    Ok(())
}

#[test]
fn a_pod_that_stock_flannel_added_is_checked_and_deleted() -> Result<()> {
    let world = World::new("cniupg", "1.0.0", V4)?;
    let pod = world.runtime.sandbox("pod1")?;
    let result = world.list.add(&pod, &Value::Null)?;
    let file = |name: &str| world.runtime.node().outside_path(format!("{STATE}/{name}"));
    fs::rename(file("pod1:eth0"), file("pod1"))?;
    world.list.check(&pod, &Value::Null, &result)?;
    world.list.del(&pod, &Value::Null, &result)?;
    world.runtime.expect_clean()
}

#[test]
fn two_interfaces_of_one_pod_go_one_by_one() -> Result<()> {
    let world = World::new("cnitwo", "1.0.0", V4)?;
    let eth0 = world.runtime.sandbox("pod1")?;
    let net1 = Sandbox {
        ifname: "net1".to_owned(),
        ..eth0.clone()
    };
    // Only one may have the default route.
    let plain = List::new(&world.runtime, "1.0.0", json!([{ "type": "flannel" }]))?;
    let (first, second) = (
        world.list.add(&eth0, &Value::Null)?,
        plain.add(&net1, &Value::Null)?,
    );
    assert_eq!(world.runtime.leases().len(), 2);
    world.list.del(&eth0, &Value::Null, &first)?;
    assert_eq!(world.runtime.leases(), addresses(&second));
    world
        .runtime
        .inside(&eth0, "ping -n -c 1 -W 2 10.244.7.1")?;
    plain.del(&net1, &Value::Null, &second)?;
    world.runtime.expect_clean()
}
