//! A network namespace for one test, with an underlay in it.

use std::{net::IpAddr, process::Command};

use flannel_common::packet::addr::Mac;
use flannel_netlink::{Link, VxlanSpec};
use nix::sched::CloneFlags;
use serde_json::Value;

pub(crate) use crate::shared::Namespace;
use crate::shared::in_namespace_with;

/// The address of [`VTEP_MAC`]'s device.
pub(crate) const VTEP_MAC: Mac = Mac([0x02, 0x00, 0x5e, 0x10, 0x00, 0x01]);

/// Runs `test` in a namespace with `eth0` up: 10.9.0.1/24, `fd00:9::1/64`, MTU 1500.
pub(crate) fn in_namespace(test: impl AsyncFnOnce(Namespace) + Send + 'static) {
    in_namespace_with(CloneFlags::empty(), underlay, test);
}

fn underlay() {
    ip("link set lo up");
    ip("link add eth0 mtu 1500 type veth peer name peer0 mtu 1500");
    ip("link set peer0 up");
    ip("link set eth0 up");
    ip("addr add 10.9.0.1/24 dev eth0");
    ip("-6 addr add fd00:9::1/64 dev eth0 nodad");
}

/// Runs one command of iproute2 in the calling thread's namespace; panics when it fails.
pub(crate) fn ip(arguments: &str) -> String {
    run("ip", arguments)
}

/// Like [`ip`], for `bridge`.
pub(crate) fn bridge(arguments: &str) -> String {
    run("bridge", arguments)
}

/// The JSON answer of `ip -d -j`, an array.
pub(crate) fn ip_json(arguments: &str) -> Vec<Value> {
    let text = ip(&format!("-d -j {arguments}"));
    if text.trim().is_empty() {
        Vec::new()
    } else {
        serde_json::from_str(&text).expect("JSON from ip")
    }
}

/// Runs a program in the calling thread's namespace; panics when it fails.
pub(crate) fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program)
        .args(arguments.split_whitespace())
        .output()
        .expect("the program is installed");
    assert!(
        output.status.success(),
        "{program} {arguments}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).expect("UTF-8 from iproute2")
}

pub(crate) fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

impl Namespace {
    /// The link of that name, which is there.
    pub(crate) async fn link(&self, name: &str) -> Link {
        self.netlink
            .link_by_name(name)
            .await
            .expect("a lookup")
            .unwrap_or_else(|| panic!("no link {name}"))
    }

    /// Creates stock flannel's device for the family of `local`.
    pub(crate) async fn vxlan(&self, local: &str) -> VxlanSpec {
        let local = addr(local);
        let name = if local.is_ipv4() {
            "flannel.1"
        } else {
            "flannel-v6.1"
        };
        let spec = VxlanSpec {
            name: name.into(),
            vni: 1,
            port: 8472,
            mtu: 1450,
            mac: VTEP_MAC,
            lower: self.link("eth0").await.index,
            local,
            learning: false,
            gbp: false,
            udp_zero_csum6_rx: false,
        };
        self.netlink
            .create_vxlan(&spec)
            .await
            .expect("a vxlan device");
        spec
    }

    /// Creates the IPv4 device, up, and returns its index.
    pub(crate) async fn flannel_1(&self) -> u32 {
        self.vxlan("10.9.0.1").await;
        let index = self.link("flannel.1").await.index;
        self.netlink.set_up(index).await.expect("up");
        index
    }
}
