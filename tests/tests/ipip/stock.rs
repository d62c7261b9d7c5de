//! Device and routes that stock flannel left on the node are taken over.

use anyhow::{Result, ensure};
use flannel_tests::{
    TwoNodes,
    cluster::{self, LEASES, topology::Stack},
};

use super::{DEVICE, IPIP, device, lacks_ipip, routes};

/// A device with the MTU that the kernel chose, and a route of protocol boot to a peer that has a
/// lease.
#[test]
fn the_device_and_the_routes_of_stock_flannel_are_taken_over() -> Result<()> {
    if lacks_ipip("the device of stock flannel's ipip") {
        return Ok(());
    }
    let nodes = TwoNodes::with("ipip-stock", Stack::V4, &cluster::config(Stack::V4, IPIP))?;
    let lease = r#"{"PublicIP":"192.168.1.99","PublicIPv6":null,"BackendType":"ipip"}"#;
    nodes
        .etcd
        .put(&format!("{LEASES}10.244.9.0-24"), lease, Some(86_400))?;
    nodes.a.sh(&format!(
        "ip link add {DEVICE} type ipip local 192.168.1.11 remote any nopmtudisc"
    ))?;
    nodes.a.sh(&format!("ip link set {DEVICE} mtu 1450 up"))?;
    nodes.a.sh(&format!(
        "ip route add 10.244.9.0/24 via 192.168.1.99 dev {DEVICE} onlink"
    ))?;
    let before = device(&nodes.a)?["ifindex"].clone();
    let agent = nodes.a.ready_agent(nodes.options()?)?;
    agent.wait_peers(1)?;
    let after = device(&nodes.a)?;
    assert_eq!(
        (&after["ifindex"], &after["mtu"]),
        (&before, &1480.into()),
        "{after}"
    );
    let routes = routes(&nodes.a)?;
    ensure!(
        routes.len() == 1 && routes[0]["dst"] == "10.244.9.0/24" && routes[0]["dev"] == DEVICE,
        "{routes:?}"
    );
    Ok(())
}
