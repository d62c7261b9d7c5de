//! A node whose subnet changed, as after its Node was deleted and made again: its bridge has the
//! address of the former one.

use anyhow::{Result, ensure};
use flannel_tests::cni::addresses;
use serde_json::Value;

use super::world::World;

#[test]
fn new_pods_start_after_the_node_got_another_subnet() -> Result<()> {
    let world = World::new("clumoved")?;
    let list = &world.lists[0];
    let (before, after) = (
        list.runtime().sandbox("before")?,
        list.runtime().sandbox("after")?,
    );
    let former = list.add(&before, &Value::Null)?;
    list.del(&before, &Value::Null, &former)?;
    world.agents[0].sigterm_and_wait()?;
    let node = &world.net.a;
    let former = node.subnet_env()?.subnets;
    // Others than those of any node.
    node.sh("sed -i -e s/SUBNET=10.244.[0-9]*/SUBNET=10.244.253/ -e \
        s/SUBNET=fd00:10:244:[0-9a-f]*/SUBNET=fd00:10:244:fdfd/ /run/flannel/subnet.env")?;
    let moved = node.subnet_env()?.subnets;
    ensure!(
        moved
            .iter()
            .zip(&former)
            .all(|(moved, former)| moved != former),
        "{former:?}, then {moved:?}"
    );
    let result = list.add(&after, &Value::Null)?;
    for (address, subnet) in addresses(&result)?.iter().zip(&moved) {
        ensure!(subnet.contains(address), "{address} is not in {subnet}");
    }
    let bridge = node.sh("ip -br address show dev cni0")?.stdout;
    ensure!(
        bridge.contains(" 10.244.253.1/24 ") && !bridge.contains(&former[0].addr().to_string()),
        "{bridge}"
    );
    list.del(&after, &Value::Null, &result)
}
