//! A hundred pods at once.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::cni::{List, Sandbox, V4, at_once};
use serde_json::{Value, json};

use super::{World, addresses};

const PODS: usize = 100;

#[test]
fn a_hundred_pods_come_and_go_at_once() -> Result<()> {
    let world = World::new("cnimany", "1.0.0", V4)?;
    let list = List::new(&world.runtime, "1.0.0", json!([{ "type": "flannel" }]))?;
    let pods: Vec<Sandbox> = (0..PODS)
        .map(|number| world.runtime.sandbox(&format!("pod{number}")))
        .collect::<Result<_>>()?;
    let results = at_once(&pods, |pod| list.add(pod, &Value::Null))?;
    let given: BTreeSet<String> = results.iter().flat_map(addresses).collect();
    assert_eq!(
        (
            given.len(),
            world.runtime.leases().len(),
            world.runtime.state().len()
        ),
        (PODS, PODS, PODS)
    );
    world
        .runtime
        .inside(&pods[0], "ping -n -c 1 -W 2 10.244.7.1")
        .context("the first pod's gateway")?;

    // Half of them go while others come.
    let (go, stay) = pods.split_at(PODS / 2);
    let come: Vec<Sandbox> = (0..PODS / 2)
        .map(|number| world.runtime.sandbox(&format!("new{number}")))
        .collect::<Result<_>>()?;
    let both = [go, come.as_slice()].concat();
    at_once(&both, |pod| {
        if pod.id.starts_with("new") {
            list.add(pod, &Value::Null).map(drop)
        } else {
            list.del(pod, &Value::Null, &Value::Null)
        }
    })?;
    let expected: BTreeSet<String> = stay
        .iter()
        .chain(&come)
        .map(|pod| format!("{}:eth0", pod.id))
        .collect();
    ensure!(
        world.runtime.state().into_iter().collect::<BTreeSet<_>>() == expected,
        "{:?}",
        world.runtime.state()
    );
    assert_eq!(world.runtime.leases().len(), PODS);

    at_once(&pods, |pod| list.del(pod, &Value::Null, &Value::Null))?;
    at_once(&come, |pod| list.del(pod, &Value::Null, &Value::Null))?;
    world.runtime.expect_clean()
}
