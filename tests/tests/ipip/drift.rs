//! Device, address and routes are restored if another process changes them.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    TwoNodes,
    cluster::{self, topology::Stack},
};
use serde_json::{Value, json};

use super::{DEVICE, IPIP, device, lacks_ipip, routes};

#[test]
fn a_changed_and_a_deleted_device_and_its_routes_come_back() -> Result<()> {
    if lacks_ipip("repair with the backend ipip") {
        return Ok(());
    }
    let nodes = TwoNodes::with("ipip-drift", Stack::V4, &cluster::config(Stack::V4, IPIP))?;
    let [agent, _] = nodes.agents_with_peers(1)?;
    let status = agent.status()?;
    let subnet = status["peers"][0]["subnet"]
        .as_str()
        .context("a subnet")?
        .to_owned();
    let own = status["lease"]["subnet"]
        .as_str()
        .context("our subnet")?
        .split('/')
        .next()
        .context("an address")?
        .to_owned();
    let read = || -> Result<Vec<Value>> {
        let link = device(&nodes.a)?;
        let addresses: Vec<Value> = nodes
            .a
            .json(&["ip", "-json", "-4", "address", "show", DEVICE])?;
        let address = &addresses[0]["addr_info"];
        ensure!(
            address.as_array().is_some_and(|list| list.len() == 1),
            "{address}"
        );
        let routes = routes(&nodes.a)?
            .into_iter()
            .map(|route| json!([route["dst"], route["gateway"], route["dev"]]));
        let data = &link["linkinfo"]["info_data"];
        ensure!(
            link["flags"]
                .as_array()
                .is_some_and(|flags| flags.contains(&json!("UP"))),
            "{link}"
        );
        Ok([json!([
            link["mtu"],
            data["local"],
            data["remote"],
            address[0]["local"],
            address[0]["prefixlen"]
        ])]
        .into_iter()
        .chain(routes)
        .collect())
    };
    let changes = [
        format!("ip link set {DEVICE} mtu 1400"),
        format!("ip link set {DEVICE} down"),
        format!("ip address del {own}/32 dev {DEVICE}"),
        format!("ip route del {subnet}"),
        format!("ip route replace {subnet} via 192.168.1.99 dev eth0"),
        format!("ip link del {DEVICE}"),
        format!("ip link set {DEVICE} type ipip local 192.168.1.99"),
    ];
    nodes.a.expect_repairs(&changes, read)
}
