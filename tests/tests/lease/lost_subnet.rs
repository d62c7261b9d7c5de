//! A subnet that goes to another node while pods have addresses of it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, Node, StockNode, TwoNodes, cluster::VXLAN, eventually};
use serde_json::Value;

use super::own::{key_in, own_key};

const LIMIT: Duration = Duration::from_secs(20);

fn routes(node: &Node, subnet: &str) -> Result<Vec<String>> {
    Ok(node
        .sh(&format!("ip route show {subnet}"))?
        .stdout
        .lines()
        .map(str::to_owned)
        .collect())
}

/// Waits until the routes to a subnet lead by these devices, the first one first.
fn wait_routes(node: &Node, subnet: &str, devices: &[&str]) -> Result<()> {
    eventually("the routes", LIMIT, || {
        let found = routes(node, subnet)?;
        let right = found
            .iter()
            .zip(devices)
            .all(|(route, device)| route.contains(&format!("dev {device}")));
        ensure!(
            right && found.len() == devices.len(),
            "{found:?}, not by {devices:?}"
        );
        Ok(())
    })
}

fn wait_named(agent: &Agent, list: &str, text: &str) -> Result<Value> {
    agent.wait_status(list, |status| {
        ensure!(status[list].to_string().contains(text), "{}", status[list]);
        Ok(())
    })
}

/// The bridge's own route stays, so that this host reaches its pods; new pods on the bridge reach
/// the other node; and the status names the bridge throughout.
#[test]
fn the_route_of_the_bridge_outlives_the_loss_of_its_subnet() -> Result<()> {
    let pair = TwoNodes::new("lost-subnet", VXLAN)?;
    let [a, _b] = pair.agents()?;
    let pod = pair.a.add_pod("p1")?;
    let key = own_key(&a)?;
    let name = key.rsplit('/').next().context("a name")?;
    let subnet = name.replace('-', "/");
    wait_routes(&pair.a, &subnet, &["cni0"])?;
    let heir = StockNode::named(name, "192.168.1.99", "02:00:00:00:00:99");
    heir.put(&pair.etcd)?;
    a.wait_status("another subnet", |status| {
        ensure!(status["ready"] == true && key_in(status)? != key);
        Ok(())
    })?;
    a.wait_peers(2)?;
    let named = wait_named(&a, "dirty", "cni0 has an address in")?;
    assert_eq!(named["ready"], true, "{named}");
    wait_named(&a, "lost_subnets", &format!("and is that of lease {name}"))?;
    wait_routes(&pair.a, &subnet, &["cni0"])?;
    let host_reaches = format!("ping -n -c 1 -W 2 {}", pod.ip());
    pair.a.sh(&host_reaches)?;

    // A new pod: its gateway is on the bridge.
    let gateway = a.status()?["lease"]["subnet"]
        .as_str()
        .context("a subnet")?
        .replace(".0/24", ".1/24");
    pair.a.sh(&format!("ip address add {gateway} dev cni0"))?;
    wait_routes(&pair.a, &subnet, &["flannel.1", "cni0"])?;
    let status = wait_named(&a, "dirty", "[]")?;
    assert!(
        status["lost_subnets"].to_string().contains("cni0"),
        "{status}"
    );

    pair.etcd.delete(&heir.key())?;
    wait_routes(&pair.a, &subnet, &["cni0"])?;
    pair.a.sh(&host_reaches)?;
    wait_named(&a, "lost_subnets", "cni0")?;

    let former = subnet.replace(".0/24", ".1/24");
    pair.a.sh(&format!("ip address del {former} dev cni0"))?;
    wait_named(&a, "lost_subnets", "[]")?;
    Ok(())
}

/// Also where it is a network of the operator's, and where the kernel makes the route later.
#[test]
fn the_connected_route_of_another_device_is_left_and_ours_made_when_it_is_gone() -> Result<()> {
    let pair = TwoNodes::new("connected", VXLAN)?;
    let [a, _b] = pair.agents()?;
    pair.a.sh("ip link add lan0 type bridge")?;
    pair.a.sh("ip link set lan0 up")?;
    pair.a.sh("ip address add 10.244.9.1/24 dev lan0")?;
    StockNode::vxlan(9, "192.168.1.99", "02:00:00:00:00:09").put(&pair.etcd)?;
    a.wait_peers(2)?;
    wait_named(&a, "dirty", "lan0 has an address in 10.244.9.0/24")?;
    wait_routes(&pair.a, "10.244.9.0/24", &["lan0"])?;
    pair.a.sh("ip address del 10.244.9.1/24 dev lan0")?;
    wait_routes(&pair.a, "10.244.9.0/24", &["flannel.1"])?;
    wait_named(&a, "dirty", "[]")?;
    // The kernel adds it after ours.
    pair.a.sh("ip address add 10.244.9.1/24 dev lan0")?;
    wait_routes(&pair.a, "10.244.9.0/24", &["flannel.1", "lan0"])?;
    wait_named(&a, "lost_subnets", "lan0 has 10.244.9.1/24")?;
    Ok(())
}
