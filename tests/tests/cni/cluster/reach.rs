//! Whom pods reach, and who reaches them.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Host,
    cni::KubePod,
    fast::{Conversation, Family, PORT},
    load::rr::Protocol,
    no_agent::Talk,
    service_rules::{Backend, Service, ServiceRules},
};
use serde_json::json;

use super::world::World;

const HOST_PORT: u16 = 8081;

/// The pods, and the Services' rules on the node of the first two.
struct Pods {
    /// On `a`, also at a port of the node.
    near: KubePod,
    /// On `a`.
    beside: KubePod,
    /// On `b`.
    far: KubePod,
    rules: [ServiceRules; 2],
    world: World,
}

impl Pods {
    fn new(name: &str, backend: Backend) -> Result<Self> {
        let world = World::new(name)?;
        let port = |protocol: &str| {
            json!({
                "hostPort": HOST_PORT,
                "containerPort": PORT,
                "protocol": protocol,
            })
        };
        let [on_a, on_b] = &world.lists;
        let near = on_a.pod("p1", json!([port("tcp"), port("udp")]))?;
        let (beside, far) = (on_a.pod("p2", json!([]))?, on_b.pod("p1", json!([]))?);
        let rules =
            Family::ALL.map(|family| ServiceRules::install(&world.net.a, backend, family.pods()));
        let [v4, v6] = rules;
        Ok(Self {
            near,
            beside,
            far,
            rules: [v4?, v6?],
            world,
        })
    }

    /// Puts the nodes into a mode, in which all pods take part.
    fn set_mode(&self, mode: &str) -> Result<()> {
        self.world.set_mode(mode)?;
        let [a, b] = &self.world.agents;
        let pods = [(a, &self.near), (a, &self.beside), (b, &self.far)];
        pods.into_iter()
            .filter(|_| mode == "fast")
            .try_for_each(|(agent, pod)| agent.wait_pod(pod, true, true))
    }

    fn talk(
        &self,
        mode: &str,
        by: [bool; 2],
        from: &Host,
        to: &KubePod,
        at: SocketAddr,
        via: SocketAddr,
    ) -> Result<IpAddr> {
        let mut talk = Talk::open(from, to, at, Some(via))?;
        self.world
            .carried(mode, by, |messages| talk.exchange(messages))
            .with_context(|| via.to_string())?;
        Ok(talk.server.peer_addr()?.ip())
    }

    /// The other node's pod and that of the own node, by connections and datagrams.
    fn each_other(&self, mode: &str, family: Family) -> Result<()> {
        for (to, by) in [(&self.far, [true; 2]), (&self.beside, [true, false])] {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let mut talk = Conversation::open(protocol, &self.near, to, family.end(to)?, None)?;
                self.world
                    .carried(mode, by, |messages| talk.exchange(messages))?;
            }
        }
        Ok(())
    }

    /// A Service each for the other node's pod, one of the own node, and the client itself, which
    /// its hairpin brings back to it.
    fn services(&self, mode: &str, family: Family) -> Result<()> {
        let backends = [
            (&self.far, [true; 2]),
            (&self.beside, [true, false]),
            (&self.near, [true, false]),
        ];
        let service = |(number, pod): (u16, &KubePod)| -> Result<Service> {
            Ok(Service::new(
                family.service(number),
                Protocol::Tcp,
                [family.end(pod)?],
            ))
        };
        let services: Vec<_> = (1..)
            .zip(backends.map(|(pod, _)| pod))
            .map(service)
            .collect::<Result<_>>()?;
        self.rules[usize::from(family == Family::V6)].set(&services)?;
        for ((pod, by), service) in backends.into_iter().zip(&services) {
            self.talk(mode, by, &self.near, pod, service.backends[0], service.at)?;
        }
        Ok(())
    }

    /// The port of the node, from the other node, from pods of both, from outside, and by the pod
    /// itself.
    fn host_port(&self, mode: &str, family: Family) -> Result<()> {
        let Self {
            near,
            beside,
            far,
            world,
            ..
        } = self;
        let (at, via) = (
            family.end(near)?,
            SocketAddr::new(family.host(11), HOST_PORT),
        );
        let clients: [(&Host, [bool; 2]); 5] = [
            (&world.net.b, [false; 2]),
            (far, [false; 2]),
            (beside, [true, false]),
            (near, [false; 2]),
            (&world.net.r, [false; 2]),
        ];
        let mut seen = None;
        for (client, by) in clients {
            let from = self.talk(mode, by, client, near, at, via);
            seen = Some(from.with_context(|| format!("from {}", client.name()))?);
        }
        ensure!(
            seen == Some(family.host(1)),
            "a client from outside was seen as {seen:?}"
        );
        let mut datagrams = Conversation::open(Protocol::Udp, &world.net.b, near, at, Some(via))?;
        world
            .carried(mode, [false; 2], |messages| datagrams.exchange(messages))
            .context("datagrams")
    }

    /// Checks that a host outside the cluster sees the pod as its node.
    fn outside(&self, mode: &str, family: Family) -> Result<()> {
        let at = SocketAddr::new(family.host(1), PORT);
        for (pod, node) in [(&self.near, 11), (&self.far, 12)] {
            let mut talk = Talk::open(pod, &self.world.net.r, at, None)?;
            let seen = talk.server.peer_addr()?.ip();
            ensure!(
                seen == family.host(node),
                "{} was seen as {seen}",
                pod.name()
            );
            self.world
                .carried(mode, [false; 2], |messages| talk.exchange(messages))?;
        }
        Ok(())
    }

    /// DEL of all: nothing stays.
    fn delete(self) -> Result<()> {
        let Self {
            near,
            beside,
            far,
            world,
            ..
        } = self;
        for pod in [near, beside, far] {
            pod.delete()?;
        }
        world
            .lists
            .iter()
            .try_for_each(|list| list.runtime().expect_clean())
    }
}

fn whom_pods_reach(name: &str, backend: Backend) -> Result<()> {
    let pods = Pods::new(name, backend)?;
    for mode in ["kernel", "encap", "fast"] {
        pods.set_mode(mode)?;
        let replayed = pods.world.replayed()?;
        for family in Family::ALL {
            let all = || {
                pods.each_other(mode, family).context("each other")?;
                pods.services(mode, family).context("through Services")?;
                pods.host_port(mode, family)
                    .context("at the port of a node")?;
                pods.outside(mode, family).context("to the outside")
            };
            all().with_context(|| format!("mode {mode}, {family:?}"))?;
        }
        ensure!(
            mode == "fast" || pods.world.replayed()? == replayed,
            "packets were replayed in mode {mode}"
        );
    }
    for pod in [&pods.near, &pods.beside, &pods.far] {
        ensure!(
            pod.checksum_errors()? == 0,
            "wrong checksums at {}",
            pod.name()
        );
    }
    pods.delete()
}

#[test]
fn pods_reach_all_with_services_of_iptables() -> Result<()> {
    whom_pods_reach("cluipt", Backend::Iptables)
}

#[test]
fn pods_reach_all_with_services_of_nftables() -> Result<()> {
    whom_pods_reach("clunft", Backend::Nftables)
}
