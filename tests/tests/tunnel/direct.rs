//! DirectRouting: a peer on our own segment is reached by a plain route, without a tunnel, and only
//! as long as it is one.

use std::{ops::Deref, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    cluster::{Cluster, pair::wait_dad, topology::Stack},
    eventually,
    load::{UdpLoad, UdpRun},
    packet::wire::Capture,
};
use serde_json::Value;

/// The public address of the neighbour.
const B: &str = "192.168.1.12";

struct Direct(Cluster);

impl Deref for Direct {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Direct {
    fn new(name: &str) -> Result<Self> {
        let direct = Self(Cluster::new(
            name,
            Stack::V4,
            r#"{"Type":"vxlan","DirectRouting":true}"#,
        )?);
        direct.eventually_by("direct")?;
        wait_dad(&direct.net.a)?;
        Ok(direct)
    }

    /// The route of `a` to the pods of `b`.
    fn route(&self) -> Result<Value> {
        let subnet = self
            .net
            .b
            .subnet_env()?
            .subnets
            .first()
            .copied()
            .context("a subnet")?
            .trunc();
        let routes: Vec<Value> = self.net.a.json(&[
            "ip",
            "-j",
            "-d",
            "route",
            "show",
            "exact",
            &subnet.to_string(),
        ])?;
        ensure!(routes.len() == 1, "{routes:?}");
        Ok(routes[0].clone())
    }

    /// Waits until `b` is reached from `a` in this way, in status, map and route alike.
    fn eventually_by(&self, way: &str) -> Result<()> {
        let (device, flag) = if way == "direct" {
            ("eth0", "direct")
        } else {
            ("flannel.1", "plain")
        };
        eventually(&format!("way {way}"), Duration::from_secs(5), || {
            let peer = self.agents[0].peer_status(B)?;
            let entry = self.agents[0].peer_entry(B)?;
            let route = self.route()?;
            ensure!(
                peer["way"] == way && entry["flags"] == serde_json::json!([flag]),
                "{peer}, {entry}"
            );
            ensure!(route["dev"] == device, "{route}");
            Ok(())
        })
    }
}

#[test]
fn a_neighbour_is_reached_by_a_route_of_ours_and_without_a_tunnel() -> Result<()> {
    let direct = Direct::new("direct")?;
    let route = direct.route()?;
    assert_eq!(
        (&route["protocol"], &route["gateway"]),
        (&"191".into(), &B.into()),
        "{route}"
    );
    let captures = [
        Capture::tunnel(&direct.net.b, "eth0")?,
        Capture::tunnel(&direct.net.a, "eth0")?,
    ];
    let [near, neighbour, far] = &direct.pods;
    near.ping(neighbour.ip())?;
    neighbour.ping(near.ip())?;
    assert!(
        captures.iter().all(Capture::is_empty),
        "tunnel packets between neighbours"
    );
    near.ping(far.ip())?;
    eventually("tunnel packets from afar", Duration::from_secs(2), || {
        (!captures[1].is_empty()).then_some(())
    })
}

/// The kernel decides whether a peer is a neighbour, and that may change.
#[test]
fn a_peer_that_is_no_neighbour_any_more_changes_to_the_tunnel_and_back_without_loss() -> Result<()>
{
    let direct = Direct::new("changeover")?;
    // Mode fast would hand known flows from veth to veth, where neither counter below looks.
    direct
        .agents
        .iter()
        .try_for_each(|agent| agent.set_mode("encap"))?;
    let [near, neighbour, _] = &direct.pods;
    let load = UdpLoad {
        pps: 2_000,
        duration: Duration::from_mins(1),
        payload: 64,
    };
    let run = UdpRun::start(near, neighbour, neighbour.ip(), load)?;
    let tunnelled = || direct.agents[0].counted("to_tunnel", "encapsulated");
    assert_eq!(tunnelled()?, 0);
    direct
        .net
        .a
        .sh(&format!("ip route add {B}/32 via 192.168.1.1 dev eth0"))?;
    direct.eventually_by("tunnel")?;
    eventually("encapsulated packets", Duration::from_secs(5), || {
        (tunnelled().ok()? > 1_000).then_some(())
    })?;
    direct
        .net
        .a
        .sh(&format!("ip route delete {B}/32 via 192.168.1.1 dev eth0"))?;
    direct.eventually_by("direct")?;
    let before = tunnelled()?;
    let received = direct.net.b.device_counter("cni0", "tx_packets")?;
    eventually("direct packets", Duration::from_secs(5), || {
        let now = direct.net.b.device_counter("cni0", "tx_packets").ok()?;
        (now > received + 2_000).then_some(())
    })?;
    assert_eq!(tunnelled()?, before, "encapsulated for a neighbour");
    run.stop()?.expect_complete()
}
