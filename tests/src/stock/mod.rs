//! A stock node: the commands with which stock flannel's kernel state is made by hand.
//!
//! It is the other side of tests of compatibility, and the model that our own kernel state is
//! compared with. [`Flanneld`] is the order in which stock does all of it.

mod flanneld;
pub mod mixed;
pub mod node;
mod process;
mod rules;

use std::fs;

use anyhow::{Context as _, Result};

pub use self::{
    flanneld::Flanneld,
    process::{StockBinary, StockProcess},
};
use crate::{Host, StockEnd, StockNode};

/// The tunnel device of a node with the subnet of this number, of the family of `local`, and its
/// `subnet.env`.
pub fn device(host: &Host, number: u8, local: &str, mac: &str) -> Result<()> {
    if local.contains(':') {
        return device_ipv6(host, number, local, mac);
    }
    tunnel(host, number, local, mac)?;
    subnet_env(host, number, false)
}

/// Makes only the device. The checksums of outer packets are on, as stock leaves them.
fn tunnel(host: &Host, number: u8, local: &str, mac: &str) -> Result<()> {
    host.sh(&format!(
        "ip link add flannel.1 address {mac} mtu 1450 type vxlan id 1 local {local} dev eth0 \
         dstport 8472 nolearning udpcsum"
    ))?;
    host.sh(&format!(
        "ip address add 10.244.{number}.0/32 dev flannel.1"
    ))?;
    host.sh("ip link set flannel.1 up").map(drop)
}

fn subnet_env(host: &Host, number: u8, masquerade: bool) -> Result<()> {
    let text = format!(
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.{number}.1/24\nFLANNEL_MTU=1450\n\
         FLANNEL_IPMASQ={masquerade}\n"
    );
    write_env(host, &text)
}

/// A peer behind the tunnel, in stock's order: neighbour, FDB entry, route. In each family it has.
pub fn tunnel_peer(host: &Host, peer: &StockNode) -> Result<()> {
    for (end, device) in [(&peer.v4, "flannel.1"), (&peer.v6, "flannel-v6.1")] {
        let Some(StockEnd {
            subnet,
            public_ip,
            mac,
        }) = end
        else {
            continue;
        };
        let mac = mac.as_ref().context("a VTEP")?;
        let gateway = subnet.split('/').next().context("an address")?;
        host.sh(&format!(
            "ip neigh replace {gateway} lladdr {mac} nud permanent dev {device}"
        ))?;
        host.sh(&format!(
            "bridge fdb replace {mac} dst {public_ip} self permanent dev {device}"
        ))?;
        host.sh(&format!(
            "ip route replace {subnet} via {gateway} dev {device} onlink"
        ))?;
    }
    Ok(())
}

/// The IPv6 tunnel device of a node with the subnet `fd00:10:244:<number>::/64`, and its
/// `subnet.env`. Stock asks for the MTU of IPv4, which the kernel lowers, and takes no packet
/// without a checksum.
fn device_ipv6(host: &Host, number: u8, local: &str, mac: &str) -> Result<()> {
    let base = format!("fd00:10:244:{number:x}::");
    host.sh(&format!(
        "ip link add flannel-v6.1 address {mac} mtu 1450 type vxlan id 1 local {local} dev eth0 \
         dstport 8472 nolearning \
         noudp6zerocsumtx noudp6zerocsumrx"
    ))?;
    host.sh("sysctl -qw net.ipv6.conf.flannel-v6/1.accept_ra=0")?;
    host.sh(&format!("ip address add {base}/128 dev flannel-v6.1 nodad"))?;
    host.sh("ip link set flannel-v6.1 up")?;
    let text = format!(
        "FLANNEL_IPV6_NETWORK=fd00:10:244::/48\nFLANNEL_IPV6_SUBNET={base}1/64\nFLANNEL_MTU=1450\n\
         FLANNEL_IPMASQ=false\n"
    );
    write_env(host, &text)
}

fn write_env(host: &Host, text: &str) -> Result<()> {
    let env = host.outside_path("/run/flannel/subnet.env");
    fs::create_dir_all(env.parent().context("a directory")?)?;
    fs::write(env, text).context("subnet.env")
}

/// A peer on our own segment, with `DirectRouting`.
pub fn direct_peer(host: &Host, peer: &StockNode) -> Result<()> {
    let StockEnd {
        subnet, public_ip, ..
    } = peer.v4.as_ref().context("an IPv4 end")?;
    host.sh(&format!("ip route replace {subnet} via {public_ip}"))
        .map(drop)
}
