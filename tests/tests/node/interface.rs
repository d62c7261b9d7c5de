//! The external interface under a running agent: other addresses, flaps, and recreated devices.

use std::{net::IpAddr, ops::Deref, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Node, ThreeNodes,
    cluster::{
        Cluster, LEASES, VXLAN,
        topology::{ROUTER, Stack},
    },
    eventually,
};
use serde_json::Value;

/// Less than the period of the agent's full resync, which runs without an event.
const LIMIT: Duration = Duration::from_secs(20);

/// A running cluster with a pod on each node.
struct World(Cluster);

impl Deref for World {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl World {
    fn new(name: &str) -> Result<Self> {
        Ok(Self(Cluster::new(name, Stack::V4, r#"{"Type":"vxlan"}"#)?))
    }

    /// Waits until node `a` is reached at `address`: by its own word, in the store under `key`, and
    /// by its peers.
    fn settled(&self, key: &str, address: &str) -> Result<()> {
        ready_at(&self.agents[0], address)?;
        let public = |value: &str| -> Result<String> {
            let value: Value = serde_json::from_str(value)?;
            Ok(value["PublicIP"]
                .as_str()
                .context("a public address")?
                .to_owned())
        };
        eventually("the lease", LIMIT, || {
            let found = self.etcd.get(key)?.context("the lease of node a")?;
            ensure!(public(&found)? == address, "{found}");
            Ok(())
        })?;
        for node in [&self.net.b, &self.net.c] {
            eventually("the peer's FDB entry", LIMIT, || {
                let fdb = node.sh("bridge fdb show dev flannel.1")?.stdout;
                ensure!(fdb.contains(&format!("dst {address} ")), "{fdb}");
                Ok(())
            })?;
        }
        let [a, others @ ..] = &self.pods;
        for other in others {
            eventually("pings", LIMIT, || {
                a.ping(other.ip()).and_then(|_| other.ping(a.ip()))
            })?;
        }
        Ok(())
    }

    /// The key of node `a`'s lease.
    fn key(&self) -> Result<String> {
        let leases = self.etcd.list(LEASES)?;
        let own = leases
            .into_iter()
            .find(|(_, value)| value.contains("\"192.168.1.11\""));
        Ok(own.context("a lease of 192.168.1.11")?.0)
    }

    /// Plugs node `a` in again, at this address.
    fn plug(&self, address: &str) -> Result<()> {
        self.lab.link(&self.net.a, "eth0", &self.net.r, "eth-a")?;
        self.net.r.sh("ip link set eth-a master br1")?;
        self.net
            .a
            .address("eth0", &format!("{address}/24"), Some(ROUTER))
    }
}

/// Waits until the agent is ready with this address.
fn ready_at(agent: &Agent, address: &str) -> Result<()> {
    eventually(&format!("readiness at {address}"), LIMIT, || {
        let status = agent.status()?;
        ensure!(
            status["ready"] == true && status["interface"]["public_ip"] == address,
            "{status}"
        );
        ensure!(
            status["lease"]["public_ip"] == address && status["dirty"] == Value::Array(vec![]),
            "{status}"
        );
        Ok(())
    })
}

/// Waits until the agent is not ready, for this reason.
fn not_ready(agent: &Agent, why: &str) -> Result<()> {
    eventually(&format!("an error: {why}"), LIMIT, || {
        let status = agent.status()?;
        let said = status["error"]
            .as_str()
            .is_some_and(|error| error.contains(why));
        ensure!(status["ready"] == false && said, "{status}");
        Ok(())
    })
}

fn local_address(node: &Node) -> Result<IpAddr> {
    let links: Value = node.json(&["ip", "-d", "-j", "link", "show", "dev", "flannel.1"])?;
    let local = &links[0]["linkinfo"]["info_data"]["local"];
    Ok(local
        .as_str()
        .with_context(|| format!("no local address: {links}"))?
        .parse()?)
}

#[test]
fn another_address_is_published_under_the_same_key() -> Result<()> {
    let world = World::new("readdr")?;
    let (a, key) = (&world.net.a, world.key()?);
    let mac = world.agents[0].status()?["device"]["mac"].clone();
    a.sh("ip address del 192.168.1.11/24 dev eth0")?;
    not_ready(&world.agents[0], "no usable IPv4 address")?;
    a.address("eth0", "192.168.1.21/24", Some(ROUTER))?;
    world.settled(&key, "192.168.1.21")?;
    assert_eq!(local_address(a)?, "192.168.1.21".parse::<IpAddr>()?);
    assert_eq!(world.agents[0].status()?["device"]["mac"], mac);
    Ok(())
}

#[test]
fn a_flap_is_survived() -> Result<()> {
    let world = World::new("flap")?;
    let (a, key) = (&world.net.a, world.key()?);
    for _ in 0..3 {
        a.sh("ip link set eth0 down")?;
        a.sh("ip link set eth0 up")?;
    }
    // The kernel removes the default route with the link; the administrator sets it again.
    a.sh(&format!("ip route replace default via {ROUTER}"))?;
    world.settled(&key, "192.168.1.11")
}

#[test]
fn a_recreated_interface_is_taken_by_its_name() -> Result<()> {
    let world = World::new("anew")?;
    let (a, key) = (&world.net.a, world.key()?);
    let device =
        |field: &str| -> Result<Value> { Ok(world.agents[0].status()?["device"][field].clone()) };
    let (index, mac) = (device("index")?, device("mac")?);
    a.sh("ip link del eth0")?;
    not_ready(&world.agents[0], "external interface eth0 is gone")?;
    world.plug("192.168.1.11")?;
    world.settled(&key, "192.168.1.11")?;
    // The kernel took the tunnel device with the one below it; peers know its Ethernet address.
    assert_ne!(device("index")?, index);
    assert_eq!(device("mac")?, mac);

    a.sh("ip link del eth0")?;
    world.plug("192.168.1.31")?;
    world.settled(&key, "192.168.1.31")
}

#[test]
fn an_interface_that_stays_away_gives_way_to_the_next() -> Result<()> {
    let net = ThreeNodes::new("another", VXLAN)?;
    net.lab.link(&net.a, "eth1", &net.r, "eth-a1")?;
    net.r.sh("ip link set eth-a1 master br1")?;
    let options = net.options()?.flag("--iface-regex=^eth1$");
    let agent = net.a.ready_agent(options)?;
    net.a.sh("ip link del eth0")?;
    not_ready(&agent, "external interface eth0 is gone")?;
    net.a.address("eth1", "192.168.1.41/24", Some(ROUTER))?;
    ready_at(&agent, "192.168.1.41")?;
    assert_eq!(agent.status()?["interface"]["name"], "eth1");
    Ok(())
}
