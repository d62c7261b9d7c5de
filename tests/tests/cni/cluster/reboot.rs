//! A node that reboots: new namespaces as of another kernel, an empty `/run` and no pins. Its disk
//! is unchanged.

use std::{collections::BTreeSet, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent,
    cluster::{LEASES, topology::ROUTER},
    cni::{List, Sandbox, addresses, shipped},
    eventually,
    fast::{FLAGS, Family},
    throughout,
};
use serde_json::{Value, json};

use super::world::{World, list};

const SOON: Duration = Duration::from_secs(20);

/// Ends node `a` and starts one with its addresses and disk in its place: its list.
fn reboot(world: &World) -> Result<List> {
    let old = &world.net.a;
    world.agents[0].kill9()?;
    let new = world.lab.node("a-again")?;
    let list = list(&new)?;
    new.sh(&format!(
        "cp -a /proc/{}/root/var/lib/cni /var/lib/",
        old.pid()
    ))?;
    old.end()?;
    let router = &world.net.r;
    eventually("the end of its cable", SOON, || {
        let links = router.sh("ip -br link")?.stdout;
        ensure!(!links.contains("eth-a"), "{links}");
        Ok(())
    })?;
    world.lab.link(&new, "eth0", router, "eth-a")?;
    router.sh("ip link set eth-a master br1")?;
    new.address("eth0", &format!("{}/24", Family::V4.host(11)), Some(ROUTER))?;
    new.address("eth0", &format!("{}/64", Family::V6.host(11)), None)?;
    Ok(list)
}

/// As long as a busy machine needs: no runtime calls twice here.
fn patient(list: &List) -> Result<List> {
    let mut plugins = shipped()?["plugins"].clone();
    plugins[0]["subnetFileWaitSeconds"] = json!(60);
    List::new(list.runtime(), "0.3.1", plugins)
}

fn wait_ping(list: &List, from: &Sandbox, result: &Value) -> Result<()> {
    for to in addresses(result)? {
        eventually(&format!("{to} from {}", from.id), SOON, || {
            list.runtime()
                .inside(from, &format!("ping -n -c 1 -W 1 {to}"))
        })?;
    }
    Ok(())
}

fn expect_other_addresses(former: &Value, result: &Value) -> Result<()> {
    for former in addresses(former)? {
        ensure!(
            !addresses(result)?.contains(&former),
            "{former} was given again before its DEL"
        );
    }
    Ok(())
}

#[test]
fn after_a_reboot_former_pods_go_and_new_ones_wait_for_the_agent() -> Result<()> {
    let world = World::new("cluboot")?;
    let mappings = json!([{ "hostPort": 8081, "containerPort": 80, "protocol": "tcp" }]);
    let [on_a, on_b] = &world.lists;
    let (far, one, two) = (
        on_b.runtime().sandbox("far")?,
        on_a.runtime().sandbox("one")?,
        on_a.runtime().sandbox("two")?,
    );
    let to_far = on_b.add(&far, &Value::Null)?;
    let results = [on_a.add(&one, &mappings)?, on_a.add(&two, &Value::Null)?];
    wait_ping(on_a, &one, &to_far)?;
    let (subnets, leases) = (
        world.net.a.subnet_env()?.subnets,
        world.etcd.list(LEASES)?.len(),
    );

    let on_a = reboot(&world)?;
    let runtime = on_a.runtime();
    assert_eq!(
        (runtime.state().len(), runtime.leases().len()),
        (2, 4),
        "what the disk kept"
    );
    on_a.del(&one, &mappings, &results[0])
        .context("before the agent is up")?;
    let new = runtime.sandbox("new")?;
    let (list, node) = (patient(&on_a)?, runtime.node());
    let (agent, result) = thread::scope(|scope| -> Result<(Agent, Value)> {
        let add = scope.spawn(|| list.add(&new, &mappings));
        throughout("ADD waits", Duration::from_millis(500), || {
            (!add.is_finished()).then_some(())
        })?;
        let agent = node.ready_agent(world.options()?.flags(&FLAGS))?;
        Ok((agent, add.join().expect("no panic")?))
    })?;
    assert_eq!(node.subnet_env()?.subnets, subnets, "the subnet of before");
    assert_eq!(world.etcd.list(LEASES)?.len(), leases);
    expect_other_addresses(&results[1], &result)?;
    on_a.del(&two, &Value::Null, &results[1])
        .context("once the agent is up")?;
    let given: BTreeSet<String> = addresses(&result)?
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        (runtime.leases().into_iter().collect(), runtime.state()),
        (given, vec!["new:eth0".to_owned()])
    );
    wait_ping(&on_a, &new, &to_far)?;
    wait_ping(on_b, &far, &result)?;
    agent.wait_status("the new pod", |status| {
        let pods = status["fast"]["pods"].as_array().context("mode fast")?;
        ensure!(pods.len() == 1 && pods[0]["sends"] == true && pods[0]["receives"] == true);
        Ok(())
    })?;
    on_a.del(&new, &mappings, &result)?;
    runtime.expect_clean()
}
