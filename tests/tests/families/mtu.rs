//! Each tunnel's MTU is exactly what fits the underlay, and pods get one that fits every family.

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent, Node,
    cluster::{Cluster, topology::Stack},
};

use super::VXLAN;

/// Bytes of an IP header and an echo request's: IPv4, IPv6.
const HEADERS: [(&str, u32); 2] = [("-4", 28), ("-6", 48)];

fn device_mtu(agent: &Agent, name: &str) -> Result<u64> {
    let status = agent.status()?;
    let device = status["devices"]
        .as_array()
        .and_then(|all| all.iter().find(|device| device["name"] == name));
    device
        .and_then(|device| device["mtu"].as_u64())
        .ok_or_else(|| anyhow::anyhow!("no {name} in {status}"))
}

/// Pings from a node so that the packet is as large as the MTU, and one byte larger. It may not be
/// cut on the way.
fn fits_exactly(from: &Node, to: &str, mtu: u32) -> Result<()> {
    let (family, headers) = HEADERS[usize::from(to.contains(':'))];
    let ping = |size: u32| {
        let size = size.to_string();
        from.command([
            "ping", family, "-n", "-c", "1", "-W", "2", "-M", "do", "-s", &size, to,
        ])
    };
    ping(mtu - headers).run()?;
    let refused = ping(mtu - headers + 1).any_code().run()?;
    ensure!(refused.code != 0, "{to}: {} bytes passed", mtu + 1);
    ensure!(
        refused.stderr.contains("essage too long"),
        "{to}: {}{}",
        refused.stdout,
        refused.stderr
    );
    Ok(())
}

#[test]
fn each_family_has_the_largest_mtu_that_fits() -> Result<()> {
    for (stack, expected) in [(Stack::V4, 1450), (Stack::V6, 1430), (Stack::Dual, 1430)] {
        let cluster = Cluster::new("mtu", stack, VXLAN)?;
        for mode in ["kernel", "encap"] {
            cluster.set_mode(mode)?;
            cluster.wait_connected()?;
            // The other end of the tunnel: before its pods there is a bridge with an MTU that fits
            // all families.
            for subnet in &cluster.net.c.subnet_env()?.subnets {
                let base = subnet.network();
                fits_exactly(
                    &cluster.net.a,
                    &base.to_string(),
                    if base.is_ipv4() { 1450 } else { 1430 },
                )?;
            }
        }
        assert_eq!(cluster.net.a.subnet_env()?.mtu, expected, "{stack:?}");
        for (name, mtu, has) in [
            ("flannel.1", 1450, stack.has_v4()),
            ("flannel-v6.1", 1430, stack.has_v6()),
        ] {
            let found = device_mtu(&cluster.agents[0], name).ok();
            assert_eq!(found, has.then_some(mtu), "{stack:?} {name}");
        }
    }
    Ok(())
}
