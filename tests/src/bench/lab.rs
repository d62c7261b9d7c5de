//! The two nodes of the bench and one measurement on them.

use std::{
    env, fs,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    plan::{Mode, Profile, Workload},
    worker::READY,
};
use crate::{
    Agent, AgentOptions, Host, Lab, Pod, cluster, eventually,
    load::{
        iperf::tcp_stream,
        rr::{Protocol, RrReport},
    },
    topology::{OFFLOAD, Two, WIRE},
};

/// Port of the request and response server.
const PORT: u16 = 7000;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// In the workload's unit.
    pub(super) value: f64,
    /// Time of the pinned CPU per unit of work; see [`Workload::cpu_unit`].
    pub(super) cpu: f64,
}

/// Two nodes with an agent and a pod each.
pub(super) struct Bench {
    net: Two,
    agents: [Agent; 2],
    pods: [Pod; 2],
    cpu: usize,
    program: PathBuf,
    // Last: the lab goes when its handles are of no use any more.
    _lab: Lab,
}

impl Bench {
    pub(super) fn new(cpu: Option<usize>) -> Result<Self> {
        let cpu = match cpu {
            Some(cpu) => cpu,
            None => thread::available_parallelism()?.get() - 1,
        };
        let lab = Lab::new("bench")?;
        lab.end_on_interrupt()?;
        let net = Two::new(&lab)?;
        let etcd = lab.etcd(&net.a)?;
        etcd.put(cluster::CONFIG_KEY, cluster::VXLAN, None)?;
        let options = AgentOptions::etcd(&etcd.endpoint("192.168.1.11"))?;
        let agents = [net.a.agent(options.clone())?, net.b.agent(options)?];
        agents.iter().try_for_each(Agent::wait_ready)?;
        let pods = [net.a.add_pod("p1")?, net.b.add_pod("p1")?];
        pods[0].ping(pods[1].ip())?;
        Ok(Self { net, agents, pods, cpu, program: env::current_exe()?, _lab: lab })
    }

    /// Sets both ends of the cable up for a profile.
    pub(super) fn set_profile(&self, profile: Profile) -> Result<()> {
        let features = match profile {
            Profile::Offload => OFFLOAD,
            Profile::Wire => WIRE,
        };
        for node in [&self.net.a, &self.net.b] {
            node.sh(&format!("ethtool -K eth0 {features}"))?;
        }
        Ok(())
    }

    /// Switches both agents; the host network needs no mode.
    pub(super) fn set_mode(&self, mode: Mode) -> Result<()> {
        match mode {
            Mode::Host => Ok(()),
            Mode::Kernel | Mode::Encap | Mode::Fast => {
                self.agents.iter().try_for_each(|agent| agent.set_mode(&mode.to_string()))
            }
        }
    }

    /// Measures, and makes sure that the packets went the way they should.
    pub(super) fn sample(&self, workload: Workload, mode: Mode, seconds: u32) -> Result<Sample> {
        let (from, to, at) = self.ends(mode)?;
        let before = self.taken()?;
        let sample = match workload {
            Workload::TcpStream => self.stream(from, to, at, seconds),
            Workload::TcpRr => self.rr(from, to, at, Protocol::Tcp, seconds),
            Workload::UdpRr => self.rr(from, to, at, Protocol::Udp, seconds),
        }
        .with_context(|| format!("{workload} in mode {mode}"))?;
        let taken = self.taken()?;
        let [encapsulated, replayed] = [taken[0] - before[0], taken[1] - before[1]];
        let as_expected = match mode {
            Mode::Host | Mode::Kernel => encapsulated == 0 && replayed == 0,
            Mode::Encap => encapsulated > 0 && replayed == 0,
            // A packet now and then shows how the kernel treats the flow.
            Mode::Fast => replayed > 10 * encapsulated,
        };
        ensure!(as_expected, "{workload} in mode {mode}: {encapsulated} packets encapsulated, {replayed} replayed");
        Ok(sample)
    }

    /// Packets encapsulated at the tunnel device, and packets sent on straight from the pod.
    fn taken(&self) -> Result<[u64; 2]> {
        let agent = &self.agents[0];
        Ok([agent.counted("to_tunnel", "encapsulated")?, agent.counted("from_pod", "replayed")?])
    }

    fn ends(&self, mode: Mode) -> Result<(&Host, &Host, IpAddr)> {
        Ok(match mode {
            Mode::Host => (&self.net.a, &self.net.b, "192.168.1.12".parse()?),
            Mode::Kernel | Mode::Encap | Mode::Fast => (&self.pods[0], &self.pods[1], self.pods[1].ip()),
        })
    }

    fn stream(&self, from: &Host, to: &Host, at: IpAddr, seconds: u32) -> Result<Sample> {
        let busy = busy_seconds(self.cpu)?;
        let stream = tcp_stream(from, to, at, seconds, Some(self.cpu))?;
        let busy = busy_seconds(self.cpu)? - busy;
        let gigabits = stream.bits_per_second * f64::from(seconds) / 1e9;
        Ok(Sample { value: stream.bits_per_second / 1e9, cpu: busy * 1e3 / gigabits })
    }

    fn rr(&self, from: &Host, to: &Host, at: IpAddr, protocol: Protocol, seconds: u32) -> Result<Sample> {
        let kind = format!("{protocol:?}").to_lowercase();
        let address = SocketAddr::new(at, PORT).to_string();
        let pinned = |worker: &str| {
            let program = self.program.display().to_string();
            ["taskset", "-c", &self.cpu.to_string(), &program, worker, &kind, &address].map(str::to_owned).to_vec()
        };
        let server = to.spawn("rr-server", pinned("rr-server"))?;
        eventually("a server that is ready", Duration::from_secs(5), || server.log().contains(READY).then_some(()))?;
        let busy = busy_seconds(self.cpu)?;
        let client = pinned("rr-client").into_iter().chain([seconds.to_string()]);
        let output = from.command(client).limit(Duration::from_secs(u64::from(seconds) + 10)).run()?;
        let busy = busy_seconds(self.cpu)? - busy;
        server.wait_success(Duration::from_secs(5))?;
        let report: RrReport = serde_json::from_str(&output.stdout).context(output.stdout)?;
        #[expect(clippy::cast_precision_loss, reason = "a few million transactions")]
        let transactions = report.transactions as f64;
        Ok(Sample { value: report.median, cpu: busy * 1e6 / transactions })
    }
}

/// Seconds a CPU was not idle since boot: user, nice, system, irq and softirq of `/proc/stat`, in steps of 10 ms.
fn busy_seconds(cpu: usize) -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let prefix = format!("cpu{cpu} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
    let line = line.with_context(|| format!("there is no CPU {cpu}"))?;
    let ticks: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>().context("/proc/stat")?;
    let busy: f64 = [0, 1, 2, 5, 6].iter().filter_map(|place| ticks.get(*place)).sum();
    Ok(busy / 100.0)
}
