//! The two nodes of one mode, and one measurement on them.
//!
//! Each mode has its own nodes and its own cable, so that none inherits flows, sysctls or rules of
//! another, and a measurement can follow on that of another mode at once. All have the same
//! netfilter rules.

use std::{
    env,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;

use super::{
    cpus::{Cpus, pinned},
    plan::{Mode, Profile, Via, Workload},
    proof::{Counts, objection},
    rules,
    worker::{Done, READY, WARM_UP},
};
use crate::{
    Agent, AgentOptions, ChildGuard, Etcd, Host, Lab, Node, Pod,
    cluster::{
        self,
        etcd::CONFIG_KEY,
        nodes::ready_agents,
        topology::{OFFLOAD, SECOND, Stack, Two, WIRE},
    },
    eventually,
};

const STORE: &str = "http://192.168.1.12:2379";

/// The largest receive buffer of TCP, bytes. On one CPU all of it waits to be copied, and the
/// kernel's own bound is more than the CPU's cache holds: how large it grows is decided in the
/// first milliseconds, and would be a third of what is measured.
const RECEIVE_BUFFER: u32 = 1 << 20;

/// The CPUs that a load runs on, and its duration in seconds.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) cpus: Cpus,
    pub(super) seconds: f64,
}

/// The binaries of modes that are not those of the agent under test.
#[derive(Debug, Default)]
pub(super) struct Binaries {
    /// Of [`Mode::Stock`].
    pub(super) flanneld: Option<PathBuf>,
    /// Of [`Mode::Other`].
    pub(super) agent: Option<PathBuf>,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// In the workload's unit.
    pub(super) value: f64,
    /// Time of the CPUs per unit of work; see [`Workload::cpu_unit`].
    pub(super) cpu: f64,
    /// Segments of TCP that client and server sent again, a second.
    pub(super) sent_again: f64,
}

/// A measurement, or why it is none of its mode.
pub(super) type Outcome = Result<Sample, String>;

/// Two nodes in one mode, ready.
pub(super) struct Site {
    pub(super) mode: Mode,
    net: Two,
    pods: Option<[Pod; 2]>,
    agents: Option<[Agent; 2]>,
    // They run as long as these are held.
    _flanneld: Option<[ChildGuard; 2]>,
    _etcd: Option<Etcd>,
}

impl Site {
    pub(super) fn new(lab: &Lab, mode: Mode, binaries: &Binaries, cpus: &Cpus) -> Result<Self> {
        Self::start(lab, mode, binaries, cpus).with_context(|| mode.title())
    }

    fn start(lab: &Lab, mode: Mode, binaries: &Binaries, cpus: &Cpus) -> Result<Self> {
        let [a, b] = ["a", "b"].map(|end| format!("{mode}-{end}"));
        let net = Two::named(lab, [&a, &b], Stack::V4)?;
        // A Service's address must lead somewhere before it is translated.
        net.a.sh(&format!("ip route add default via {SECOND}"))?;
        let etcd = (mode != Mode::Host)
            .then(|| store(lab, &net.b, mode))
            .transpose()?;
        let other = binaries.agent.as_deref().filter(|_| mode == Mode::Other);
        let agents = mode
            .datapath()
            .map(|_| start_agents(&net, mode, other, cpus))
            .transpose()?;
        let stock = binaries.flanneld.as_deref().filter(|_| mode == Mode::Stock);
        let flanneld = stock
            .map(|binary| start_flanneld(&net, binary))
            .transpose()?;
        let pods = (!mode.is_between_nodes()).then(|| pods(&net)).transpose()?;
        let site = Self {
            mode,
            net,
            pods,
            agents,
            _flanneld: flanneld,
            _etcd: etcd,
        };
        site.wait_fast()?;
        let server = site.server_ip()?;
        site.nodes()
            .into_iter()
            .try_for_each(|node| rules::install(node, server, mode))?;
        let (client, server) = site.ends();
        for end in [client, server] {
            set_tcp_up(end)?;
        }
        Ok(site)
    }

    fn wait_fast(&self) -> Result<()> {
        match (self.mode, &self.agents, &self.pods) {
            (
                Mode::Fast | Mode::OutwardFast | Mode::InwardFast | Mode::WireguardFast,
                Some(agents),
                Some(pods),
            ) => agents
                .iter()
                .zip(pods)
                .try_for_each(|(agent, pod)| agent.wait_pod(pod, true, true)),
            _ => Ok(()),
        }
    }

    pub(super) fn nodes(&self) -> [&Node; 2] {
        [&self.net.a, &self.net.b]
    }

    /// The agents, where the mode is ours.
    pub(super) fn agents(&self) -> Option<&[Agent; 2]> {
        self.agents.as_ref()
    }

    /// Sets both ends of the cable up for a profile.
    pub(super) fn set_profile(&self, profile: Profile) -> Result<()> {
        let features = match profile {
            Profile::Offload => OFFLOAD,
            Profile::Wire => WIRE,
        };
        self.nodes()
            .into_iter()
            .try_for_each(|node| node.sh(&format!("ethtool -K eth0 {features}")).map(drop))
    }

    /// Measures, and looks whether the packets went the way they should.
    pub(super) fn sample(&self, workload: Workload, via: Via, load: &Load) -> Result<Outcome> {
        let before = self.counts()?;
        let sample = self
            .measure(workload, via, load)
            .with_context(|| format!("{workload} in {}", self.mode.title()))?;
        let after = self.counts()?;
        let seconds = load.seconds + WARM_UP.as_secs_f64();
        Ok(
            match objection(self.mode, workload, [before, after], seconds) {
                None => Ok(sample),
                Some(objection) => Err(format!(
                    "{workload} via {via} in {}: {objection}",
                    self.mode.title()
                )),
            },
        )
    }

    fn counts(&self) -> Result<[Counts; 2]> {
        Ok(match &self.agents {
            Some([a, b]) if self.mode.is_encrypted() => {
                [Counts::of_wireguard(a)?, Counts::of_wireguard(b)?]
            }
            Some([a, b]) if self.mode != Mode::Other => [Counts::read(a)?, Counts::read(b)?],
            _ => [Counts::default(); 2],
        })
    }

    fn measure(&self, workload: Workload, via: Via, load: &Load) -> Result<Sample> {
        let (client, server) = self.ends();
        let at = match via {
            _ if self.mode.is_inward() => SECOND.parse()?,
            Via::Pod => self.server_ip()?,
            Via::Service => rules::SERVICE,
        };
        let received = || server.counter("Udp", "InDatagrams");
        let retransmitted = || -> Result<u64> {
            [client, server]
                .into_iter()
                .map(|end| end.counter("Tcp", "RetransSegs"))
                .sum()
        };
        let before = (received()?, retransmitted()?);
        let mut done = run(
            workload,
            (client, at),
            (server, self.server_ip()?),
            via.port(),
            load,
        )?;
        if workload == Workload::UdpPps {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
            let datagrams = (received()? - before.0) as f64;
            // Of what was sent in the warm-up as much arrived as of the rest.
            done.count = datagrams * done.count / done.sent;
        }
        let units = done.count / workload.per_unit();
        ensure!(units > 0.0, "nothing arrived");
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let sent_again =
            (retransmitted()? - before.1) as f64 / (done.seconds + WARM_UP.as_secs_f64());
        Ok(Sample {
            value: units / done.seconds,
            cpu: done.busy * workload.cpu_scale() / units,
            sent_again,
        })
    }

    /// Client and server.
    pub(super) fn ends(&self) -> (&Host, &Host) {
        match &self.pods {
            Some([client, _]) if self.mode.is_outward() => (client, &self.net.b),
            Some([_, server]) if self.mode.is_inward() => (&self.net.a, server),
            Some([client, server]) => (client, server),
            None => (&self.net.a, &self.net.b),
        }
    }

    /// The server's own address.
    pub(super) fn server_ip(&self) -> Result<IpAddr> {
        Ok(match (&self.pods, &self.agents) {
            (Some(_), _) if self.mode.is_outward() => SECOND.parse()?,
            (Some([_, server]), _) => server.ip(),
            (None, Some([_, server])) => tunnel_address(server)?,
            (None, None) => SECOND.parse()?,
        })
    }
}

/// The address of a node's tunnel device.
fn tunnel_address(agent: &Agent) -> Result<IpAddr> {
    let status = agent.status()?;
    let subnet = status["lease"]["subnet"].as_str().context("a subnet")?;
    Ok(subnet
        .parse::<IpNet>()
        .context(subnet.to_owned())?
        .network())
}

/// Sets the same TCP settings in every mode. If BBR is the default, it paces by its model of the
/// path, and its timers take a third of the CPU; Reno is allowed in every namespace, and these
/// links lose no packets. No connection is kept in TIME_WAIT: masquerade gives the port of a closed
/// one to the next at random, and its SYN, with an older timestamp, is ignored and sent again a
/// second later.
fn set_tcp_up(end: &Host) -> Result<()> {
    let settings = [
        "tcp_congestion_control=reno".to_owned(),
        format!("tcp_rmem=4096 131072 {RECEIVE_BUFFER}"),
        "tcp_max_tw_buckets=0".to_owned(),
    ];
    for setting in settings {
        end.run(["sysctl", "-qw", &format!("net.ipv4.{setting}")])?;
    }
    Ok(())
}

fn store(lab: &Lab, node: &Node, mode: Mode) -> Result<Etcd> {
    let etcd = lab.etcd(node)?;
    let backend = if mode.is_encrypted() {
        r#"{"Type":"wireguard"}"#
    } else {
        r#"{"Type":"vxlan"}"#
    };
    etcd.put(CONFIG_KEY, &cluster::config(Stack::V4, backend), None)?;
    Ok(etcd)
}

/// Starts the agent under test, or another build of it. A process that is the WireGuard device runs
/// on the load's CPUs, as the kernel's own would.
fn start_agents(net: &Two, mode: Mode, other: Option<&Path>, cpus: &Cpus) -> Result<[Agent; 2]> {
    let datapath = mode.datapath().unwrap_or_default();
    let mut options = AgentOptions::etcd(STORE)?
        .flag(&format!("--datapath={datapath}"))
        .flag("--ip-masq=true");
    if mode.is_encrypted() {
        options = options.wrapped_by(&format!("taskset -c {}", cpus.list()));
    }
    if let Some(binary) = other {
        options.binary = binary.canonicalize()?;
    }
    ready_agents([&net.a, &net.b], &options)
}

fn start_flanneld(net: &Two, binary: &Path) -> Result<[ChildGuard; 2]> {
    let binary = binary.display().to_string();
    let start = |node: &Node| -> Result<ChildGuard> {
        let child = node.spawn(
            "flanneld",
            [
                binary.as_str(),
                "--etcd-endpoints",
                STORE,
                "--iface=eth0",
                "--ip-masq",
            ],
        )?;
        eventually("subnet.env of flanneld", Duration::from_secs(20), || {
            node.subnet_env()
        })
        .with_context(|| format!("end of its log:\n{}", child.log_tail(20)))?;
        Ok(child)
    };
    Ok([start(&net.a)?, start(&net.b)?])
}

/// A pod on each node, which reach each other.
fn pods(net: &Two) -> Result<[Pod; 2]> {
    let pods = [net.a.add_pod("p1")?, net.b.add_pod("p1")?];
    pods[0].wait_ping(pods[1].ip())?;
    Ok(pods)
}

/// One client asks one server: the client's host and the address it asks, the server's host and the
/// address it has.
pub(super) fn run(
    workload: Workload,
    client: (&Host, IpAddr),
    server: (&Host, IpAddr),
    port: u16,
    load: &Load,
) -> Result<Done> {
    let program = env::current_exe()?;
    let bind = SocketAddr::new(server.1, port);
    let args = ["server", &workload.to_string(), &bind.to_string()];
    let child = server
        .0
        .spawn("server", pinned(&load.cpus.server, &program, &args))?;
    eventually("a server that is ready", Duration::from_secs(5), || {
        child.log().contains(READY).then_some(())
    })?;
    let at = SocketAddr::new(client.1, port).to_string();
    let args = [
        "client",
        &workload.to_string(),
        &at,
        &load.seconds.to_string(),
        &load.cpus.list(),
    ];
    let limit = Duration::try_from_secs_f64(load.seconds + 20.0)?;
    let output = client
        .0
        .command(pinned(&load.cpus.client, &program, &args))
        .limit(limit)
        .run()?;
    child.wait_success(Duration::from_secs(5))?;
    serde_json::from_str(&output.stdout).context(output.stdout)
}
