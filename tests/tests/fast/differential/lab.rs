//! The lab of a topology: two nodes, two pods on each, captures on every pod and on both ends of
//! the cable.

use std::{cell::Cell, collections::BTreeSet, net::SocketAddr, time::Duration};

use anyhow::{Result, ensure};
use flannel_tests::{
    Node, Pod, TwoNodes,
    cluster::{config, topology::Stack},
    differential::{
        frame,
        record::Record,
        render::{Addresses, iptables, redirected},
        scenario::{Action, Flow, Kind, Place, Scenario, Side, Surroundings, Tool, Via},
    },
    eventually_stable,
    fast::{Family, FastLab},
    kernel::nfqueue::Answers,
    not_run,
    packet::wire::Capture,
    service_rules::{Backend, ServiceRules},
};

/// The path between the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    Vxlan,
    /// Over cables that are tunnels, which sum all of a packet.
    Nested,
    Direct,
    HostGw,
    /// Through a tunnel device without Ethernet.
    Wireguard,
    /// Between two clusters.
    Outside,
}

impl Topology {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "diff-vxlan",
            Self::Nested => "diff-nested",
            Self::Direct => "diff-direct",
            Self::HostGw => "diff-host-gw",
            Self::Wireguard => "diff-wireguard",
            Self::Outside => "diff-outside",
        }
    }

    /// The test that runs it.
    pub(crate) fn test(self, mode: &str) -> &'static str {
        match self {
            _ if mode == "encap" => "rules_and_traffic_in_mode_encap",
            Self::Nested => "rules_and_traffic_over_a_tunnel_in_a_tunnel",
            Self::Vxlan => "rules_and_traffic_over_the_tunnel",
            Self::Direct => "rules_and_traffic_to_direct_peers",
            Self::HostGw => "rules_and_traffic_with_host_gw",
            Self::Wireguard => "rules_and_traffic_with_wireguard",
            Self::Outside => "rules_and_traffic_with_the_outside",
        }
    }

    const fn backend(self) -> &'static str {
        match self {
            Self::Vxlan | Self::Nested | Self::Outside => r#"{"Type":"vxlan"}"#,
            Self::Direct => r#"{"Type":"vxlan","DirectRouting":true}"#,
            Self::HostGw => r#"{"Type":"host-gw"}"#,
            Self::Wireguard => r#"{"Type":"wireguard"}"#,
        }
    }

    /// The tool of Services' rules: each of both somewhere.
    const fn services(self) -> Backend {
        match self {
            Self::Direct => Backend::Iptables,
            Self::Vxlan | Self::Nested | Self::HostGw | Self::Wireguard | Self::Outside => {
                Backend::Nftables
            }
        }
    }
}

pub(crate) struct DiffLab {
    pods: [Capture; 4],
    cables: [Capture; 2],
    mirrors: [Capture; 2],
    surroundings: Cell<Surroundings>,
    pub(crate) services: [[ServiceRules; 2]; 2],
    pub(crate) addresses: Addresses,
    pub(crate) tools: BTreeSet<Tool>,
    pub(crate) topology: Topology,
    // Last: the lab goes when its handles are of no use any more.
    pub(crate) lab: FastLab,
}

impl DiffLab {
    pub(crate) fn new(topology: Topology) -> Result<Self> {
        let (name, backend) = (topology.name(), topology.backend());
        let lab = match topology {
            Topology::Nested => {
                FastLab::on(TwoNodes::nested(name, &config(Stack::Dual, backend))?, &[])?
            }
            Topology::Outside => FastLab::apart(name)?,
            _ => FastLab::of(name, backend, &[])?,
        };
        let tools = tools(&lab.nodes.a);
        let is_legacy =
            topology.services() == Backend::Iptables && tools.contains(&Tool::IptablesLegacy);
        let backend = if is_legacy {
            Backend::Iptables
        } else {
            Backend::Nftables
        };
        let services = |node: &Node| -> Result<[ServiceRules; 2]> {
            let [v4, v6] =
                Family::ALL.map(|family| ServiceRules::install(node, backend, family.pods()));
            Ok([v4?, v6?])
        };
        let services = [services(&lab.nodes.a)?, services(&lab.nodes.b)?];
        let wanted = |frame: &[u8]| frame::read(frame).is_some();
        let [near, beside, far, other] = [&lab.near, &lab.beside, &lab.far, &lab.other]
            .map(|pod| Capture::start(pod, "eth0", wanted));
        let [a, b] = [&lab.nodes.a, &lab.nodes.b].map(|node| Capture::start(node, "eth0", wanted));
        let mirrors = [mirror(&lab.nodes.a, wanted)?, mirror(&lab.nodes.b, wanted)?];
        let addresses = addresses(&lab)?;
        let (pods, cables) = ([near?, beside?, far?, other?], [a?, b?]);
        let lab = Self {
            pods,
            cables,
            mirrors,
            surroundings: Cell::default(),
            services,
            addresses,
            tools,
            topology,
            lab,
        };
        lab.prepare()?;
        Ok(lab)
    }

    /// Errors of ICMP are not limited, ports can be used again at once, and every tool's way into
    /// our rules is there.
    fn prepare(&self) -> Result<()> {
        let hosts = Place::ALL.map(|place| (**self.pod(place)).clone());
        for host in hosts
            .into_iter()
            .chain(Side::ALL.map(|side| (**self.node(side)).clone()))
        {
            for key in [
                "net.ipv4.icmp_ratelimit=0",
                "net.ipv6.icmp.ratelimit=0",
                "net.ipv4.icmp_msgs_per_sec=100000",
                "net.ipv4.icmp_msgs_burst=10000",
                "net.ipv4.tcp_max_tw_buckets=0",
            ] {
                // The global limit is not every kernel's to set in a namespace.
                host.command(["sysctl", "-qw", key]).any_code().run()?;
            }
        }
        for side in Side::ALL {
            for tool in self.tools.iter().filter(|tool| **tool != Tool::Nft) {
                for family in Family::ALL {
                    let restore = super::rules::restore(*tool, family);
                    self.node(side)
                        .command(restore)
                        .input(&iptables::entries())
                        .run()?;
                }
            }
        }
        Ok(())
    }

    pub(crate) const fn pod(&self, place: Place) -> &Pod {
        match place {
            Place::Near => &self.lab.near,
            Place::Beside => &self.lab.beside,
            Place::Far => &self.lab.far,
            Place::Other => &self.lab.other,
        }
    }

    pub(crate) fn node(&self, side: Side) -> &Node {
        match side {
            Side::A => &self.lab.nodes.a,
            Side::B => &self.lab.nodes.b,
        }
    }

    /// The server's own address.
    pub(crate) fn server(&self, flow: &Flow) -> SocketAddr {
        SocketAddr::new(self.addresses.of(flow.to, flow.family), flow.server_port())
    }

    /// A Service's address. FTP's is as long as the pod's when written: other lengths change the
    /// numbers of a connection.
    pub(crate) fn service(&self, flow: &Flow) -> SocketAddr {
        let number = match (
            flow.kind,
            self.addresses.of(flow.to, flow.family).to_string().len(),
        ) {
            (Kind::Ftp, ..=10) => 20 + flow.id,
            (Kind::Ftp, 11) => 100 + flow.id,
            (Kind::Ftp, _) => 10 * 256 + 100 + flow.id,
            _ => flow.service_number(),
        };
        flow.family.service(number)
    }

    /// The address the client sends to.
    pub(crate) fn destination(&self, scenario: &Scenario, flow: &Flow) -> SocketAddr {
        let is_redirected = scenario
            .rules
            .iter()
            .any(|rule| rule.action == Action::Redirect(flow.id));
        match flow.via {
            _ if is_redirected => redirected(flow.family, flow.id),
            Via::Service => self.service(flow),
            Via::Direct => self.server(flow),
        }
    }

    /// Forgets what was captured.
    pub(crate) fn clear(&self) {
        self.captures().for_each(Capture::clear);
    }

    fn captures(&self) -> impl Iterator<Item = &Capture> {
        self.pods.iter().chain(&self.cables).chain(&self.mirrors)
    }

    /// Sets the filters of another program on the cables, and the offloads of the cables.
    pub(crate) fn surround(&self, surroundings: Surroundings) -> Result<()> {
        if self.surroundings.replace(surroundings) == surroundings {
            return Ok(());
        }
        let switch = if surroundings.wire { "off" } else { "on" };
        for side in Side::ALL {
            let node = self.node(side);
            // A tunnel leaves that to what is below it.
            for feature in SEGMENTATION
                .iter()
                .filter(|_| self.topology != Topology::Nested)
            {
                node.sh(&format!("ethtool -K eth0 {feature} {switch}"))?;
            }
            // There is none before the first.
            node.command("tc qdisc del dev eth0 clsact".split(' '))
                .any_code()
                .run()?;
            if surroundings.filters {
                node.sh("tc qdisc add dev eth0 clsact")?;
                let to = "action mirred egress mirror dev mirror0";
                node.sh(&format!(
                    "tc filter add dev eth0 ingress protocol all pref 10 u32 match u32 0 0 {to}"
                ))?;
            }
        }
        Ok(())
    }

    /// Adds what was captured, once nothing more comes.
    pub(crate) fn observe(&self, scenario: &Scenario, record: &mut Record) -> Result<()> {
        let counts = || Some(self.captures().map(Capture::len).collect::<Vec<_>>());
        eventually_stable("no more frames", Duration::from_secs(10), 4, counts)?;
        for place in Place::ALL {
            record.add_pod(scenario, place, &self.pods[place.index()].frames());
        }
        self.cables
            .iter()
            .for_each(|cable| record.add_cable(&cable.frames()));
        self.mirrors
            .iter()
            .for_each(|mirror| record.add_mirrored(&mirror.frames()));
        Ok(())
    }

    /// Programs that let all queued packets pass.
    pub(crate) fn answers(&self, scenario: &Scenario) -> Result<Vec<Answers>> {
        scenario
            .queues()
            .into_iter()
            .map(|side| Answers::start(self.node(side), 0))
            .collect()
    }

    /// Waits until the programs can recognise packets that waited for an answer.
    pub(crate) fn wait_queues(&self, scenario: &Scenario) -> Result<()> {
        scenario
            .queues()
            .into_iter()
            .try_for_each(|side| self.lab.agents[side.index()].wait_polls_counted())
    }

    /// In mode `fast`, every pod takes part.
    pub(crate) fn set_mode(&self, mode: &str) -> Result<()> {
        self.lab.set_mode(mode)?;
        if mode == "fast" {
            let [a, b] = &self.lab.agents;
            for (agent, place) in [
                (a, Place::Near),
                (a, Place::Beside),
                (b, Place::Far),
                (b, Place::Other),
            ] {
                agent.wait_pod(self.pod(place), true, true)?;
            }
        }
        Ok(())
    }

    /// Packets replayed so far on both nodes.
    pub(crate) fn replayed(&self) -> Result<u64> {
        Ok(self.lab.replayed()?.iter().sum())
    }
}

/// Offloads by which a veth passes large segments on as they are.
const SEGMENTATION: [&str; 4] = [
    "tso",
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
    "tx-udp-segmentation",
];

/// The target of mirroring filters: a veth whose other end belongs to no pod and no route.
fn mirror(node: &Node, wanted: fn(&[u8]) -> bool) -> Result<Capture> {
    node.sh("ip link add mirror0 type veth peer name mirror1")?;
    for device in ["mirror0", "mirror1"] {
        node.sh(&format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=1"))?;
        node.sh(&format!("ip link set {device} up"))?;
    }
    Capture::start(node, "mirror1", wanted)
}

fn addresses(lab: &FastLab) -> Result<Addresses> {
    let of = |pod: &Pod| -> Result<_> { Ok([Family::V4.of(pod)?, Family::V6.of(pod)?]) };
    Ok(Addresses([
        of(&lab.near)?,
        of(&lab.beside)?,
        of(&lab.far)?,
        of(&lab.other)?,
    ]))
}

/// The tools this machine has.
fn tools(node: &Node) -> BTreeSet<Tool> {
    let has = |tool: &Tool| {
        let command = match tool {
            Tool::Nft => vec!["nft".to_owned(), "list".to_owned(), "tables".to_owned()],
            other => [
                &super::rules::restore(*other, Family::V4)[..1],
                &["--version".to_owned()],
            ]
            .concat(),
        };
        let works = node.command(command.clone()).run();
        if let Err(error) = &works {
            not_run(&format!("rules by {}", command[0]), &format!("{error:#}"));
        }
        works.is_ok()
    };
    Tool::ALL.into_iter().filter(has).collect()
}

/// Fails on a machine without the tool that replaces missing ones.
pub(crate) fn require(tools: &BTreeSet<Tool>) -> Result<()> {
    ensure!(tools.contains(&Tool::Nft), "nft is missing");
    Ok(())
}
