//! A node behind a NAT: peers send to one address, and its packets come from another.

use anyhow::{Result, ensure};
use flannel_tests::{StockNode, TwoNodes, cluster, eventually, stock};

use super::SOON;

const NATS: &str = "203.0.113.2";

#[test]
fn a_node_behind_a_nat_announces_it_and_is_let_in() -> Result<()> {
    let pair = TwoNodes::new("behindnat", cluster::VXLAN)?;
    pair.a
        .sh(&format!("ip route add {NATS} via 192.168.1.12"))?;
    pair.b.sh("nft add table ip nat")?;
    pair.b.run([
        "nft",
        "add chain ip nat in { type nat hook prerouting priority dstnat; }",
    ])?;
    pair.b.sh(&format!(
        "nft add rule ip nat in ip daddr {NATS} dnat to 192.168.1.12"
    ))?;
    let a = pair.a.ready_agent(pair.options()?)?;
    let b = pair
        .b
        .agent(pair.options()?.flag(&format!("--public-ip={NATS}")))?;
    b.wait_ready()?;
    a.wait_peers(1)?;
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    near.wait_ping(far.ip())?;
    far.wait_ping(near.ip())?;
    let status = a.status()?;
    ensure!(
        status["guard"]["outer"]["effective"] == "enforce",
        "{}",
        status["guard"]
    );
    ensure!(
        a.counted("from_underlay", "unknown_vtep")? > 0,
        "its packets do come from elsewhere"
    );
    ensure!(
        a.counted("from_underlay", "refused_vtep")? == 0,
        "they were refused"
    );
    // Any other device at the same address is a stranger's.
    b.kill9()?;
    pair.b
        .sh("ip link set flannel.1 address 02:00:00:00:99:99")?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().replace('/', "-");
    let (name, mac) = (
        text(&status["lease"]["subnet"]),
        text(&status["device"]["mac"]),
    );
    stock::tunnel_peer(&pair.b, &StockNode::named(&name, "192.168.1.11", &mac))?;
    eventually("refused packets of another device", SOON, || {
        pair.b
            .command(["ping", "-n", "-c", "1", "-W", "0.2", &near.ip().to_string()])
            .any_code()
            .run()?;
        ensure!(a.counted("from_underlay", "refused_vtep")? > 0, "none");
        Ok(())
    })
}
