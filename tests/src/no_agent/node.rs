//! One node without an agent.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::Ipv4Addr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_backend_api::ProgramSet;
use flannel_common::{
    abi::{
        entry_state::EntryState,
        fast::{FastConfig, PodEntry},
        mode::Mode,
        node::{FamilyConfig, NodeConfig},
        peer::{PeerEntry, VtepEntry},
        program::Program,
        reason::Reason,
        tick,
    },
    flow::Flow,
    flow::flow_key::FlowKey,
    packet::addr::Mac,
};
use flannel_datapath::{
    AttachKind, Attachments, DatapathError, Hook, Maps, PinRoot, Subnets, attach::polls,
    kernel::clock, load, maps::ConfigMap,
};

use crate::{Node, Pod, agent::pins::ROOT, kernel::hooks::ifindex};

const STATE: &str = "/run/flannel";
const MTU: u32 = 1450;

/// A node, its programs and their maps.
pub struct BareNode {
    /// The node.
    pub node: Node,
    /// The maps of its programs.
    pub maps: Maps,
    number: u8,
    hooks: BTreeSet<Hook>,
    attachments: Attachments,
    stop: Arc<AtomicBool>,
}

/// The key of a flow.
pub type Key = FlowKey<[u32; 1]>;

/// Packets by (program, reason) in some time.
pub type Counts = BTreeMap<(&'static str, &'static str), u64>;

impl BareNode {
    pub(super) fn new(node: &Node, number: u8) -> Result<Self> {
        node.sh(&format!(
            "ip link add flannel.1 type vxlan id 1 dev eth0 local 192.168.1.1{number} dstport 8472 \
             nolearning"
        ))?;
        node.sh(&format!(
            "ip address add 10.244.{number}.0/32 dev flannel.1"
        ))?;
        node.sh("ip link set flannel.1 up")?;
        write_subnet_env(node, number)?;
        let pins = PinRoot::new(Path::new(ROOT));
        let maps = node.enter(|| -> Result<Maps> {
            fs::create_dir_all(STATE)?;
            load(
                &pins,
                ProgramSet::Tunnel(1).programs(),
                Subnets { v4: 256, v6: 0 },
                None,
            )?;
            Ok(Maps::open(&pins)?)
        })??;
        let attachments = Attachments::new(pins, AttachKind::detect(), 1, Path::new(STATE));
        let stop = Arc::default();
        let mut bare = Self {
            node: node.clone(),
            maps,
            number,
            hooks: BTreeSet::new(),
            attachments,
            stop,
        };
        bare.configure()?;
        bare.start_heartbeats()?;
        for (program, device) in [
            (Program::ToTunnel, "flannel.1"),
            (Program::FromTunnel, "flannel.1"),
            (Program::FromUnderlay, "eth0"),
            (Program::ToUnderlay, "eth0"),
        ] {
            bare.hook(program, device)?;
        }
        Ok(bare)
    }

    fn configure(&mut self) -> Result<()> {
        let fast = FastConfig {
            flags: FastConfig::TCP
                | FastConfig::TCP_LIBERAL
                | FastConfig::UDP
                | FastConfig::FROM_UNDERLAY
                | FastConfig::DECAPSULATE,
            interval: tick::ticks(FastConfig::INTERVAL_NS),
            tunnel_mtu: MTU,
            tunnel_mtu6: 0,
        };
        self.maps.fast.set(fast)?;
        let config = NodeConfig {
            v4: self.family()?,
            ..NodeConfig::default()
        };
        self.maps.config.write(config, clock::now_ns())?;
        Ok(())
    }

    /// Writes other settings of mode `fast`.
    pub fn set_fast(&mut self, change: impl FnOnce(&mut FastConfig)) -> Result<()> {
        let mut fast = self.maps.fast.get()?;
        change(&mut fast);
        self.maps.fast.set(fast)?;
        Ok(self.maps.mode.bump()?)
    }

    fn family(&self) -> Result<FamilyConfig> {
        Ok(FamilyConfig {
            network: Ipv4Addr::new(10, 244, 0, 0).into(),
            vtep: self.vtep().into(),
            vtep_mac: self.mac("flannel.1")?,
            port: 8472_u16.to_be_bytes(),
            vni: 1,
            subnet_shift: 8,
            subnet_count: 256,
            tunnel_ifindex: ifindex(&self.node, "flannel.1")?,
            underlay_ifindex: ifindex(&self.node, "eth0")?,
            source_port_min: 32768,
            source_port_max: 60999,
        })
    }

    /// Writes the heartbeat and confirms learned flows as an agent does, until this value is
    /// dropped.
    fn start_heartbeats(&self) -> Result<()> {
        let mut config = self
            .node
            .enter(|| ConfigMap::open(&PinRoot::new(Path::new(ROOT))))??;
        let stop = Arc::clone(&self.stop);
        thread::spawn(move || {
            let mut write_heartbeat = || -> Result<(), DatapathError> {
                let now = clock::now_ns();
                config.write_heartbeat(now)?;
                config.confirm(tick::tick(now))
            };
            while !stop.load(Ordering::Relaxed) && write_heartbeat().is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        Ok(())
    }

    /// The node's address on the underlay.
    pub const fn vtep(&self) -> Ipv4Addr {
        Ipv4Addr::new(192, 168, 1, 10 + self.number)
    }

    fn mac(&self, device: &str) -> Result<Mac> {
        let text = fs::read_to_string(
            self.node
                .outside_path(format!("/sys/class/net/{device}/address")),
        )?;
        text.trim().parse().context(text)
    }

    /// Programs the tunnel to a peer: in the kernel and in the maps.
    pub fn know(&mut self, peer: &Self) -> Result<()> {
        let (mac, vtep) = (peer.mac("flannel.1")?, peer.vtep());
        let net = format!("10.244.{}", peer.number);
        self.node.sh(&format!(
            "ip neighbour replace {net}.0 lladdr {mac} dev flannel.1 nud permanent"
        ))?;
        self.node.sh(&format!(
            "bridge fdb replace {mac} dev flannel.1 dst {vtep} self permanent"
        ))?;
        self.node.sh(&format!(
            "ip route replace {net}.0/24 via {net}.0 dev flannel.1 onlink"
        ))?;
        let oif = ifindex(&self.node, "eth0")?;
        let entry = PeerEntry {
            vtep: vtep.into(),
            next_hop: vtep.into(),
            mac,
            oif,
            mtu: 1500,
            ..PeerEntry::default()
        };
        self.maps
            .peers
            .write(peer.number.into(), entry, EntryState::PLAIN)?;
        self.maps.vteps.write(
            vtep.into(),
            VtepEntry {
                index: peer.number.into(),
                reserved: 0,
            },
        )?;
        Ok(())
    }

    /// Adds a pod with its programs and its entry.
    pub fn add_pod(&mut self, name: &str) -> Result<Pod> {
        let pod = self.node.add_pod(name)?;
        self.hook(Program::FromPod, pod.veth())?;
        self.hook(Program::ToPod, pod.veth())?;
        self.write_pod(
            &pod,
            PodEntry::SENDS | PodEntry::RECEIVES | PodEntry::MERGED,
        )?;
        Ok(pod)
    }

    /// Writes a pod's entry.
    pub fn write_pod(&mut self, pod: &Pod, flags: u16) -> Result<()> {
        let text = fs::read_to_string(pod.outside_path("/sys/class/net/eth0/address"))?;
        let mac = text.trim().parse().context(text)?;
        let entry = PodEntry {
            mac,
            flags,
            mtu: MTU,
            ..PodEntry::default()
        };
        self.maps
            .pods
            .write(ifindex(&self.node, pod.veth())?, entry)?;
        Ok(())
    }

    /// Attaches a program to a device.
    pub fn hook(&mut self, program: Program, device: &str) -> Result<()> {
        let ifindex = ifindex(&self.node, device)?;
        self.hooks.insert(Hook {
            program,
            ifindex,
            ifname: device.to_owned(),
        });
        let failed = self.node.enter(|| self.attachments.apply(&self.hooks))?;
        ensure!(failed.is_empty(), "{failed:?}");
        Ok(())
    }

    /// Counts NAPI polls and softirqs from now on, as the agent does from the first listener to a
    /// queue on.
    pub fn count_polls(&self) -> Result<()> {
        Ok(self
            .node
            .enter(|| polls::attach(&PinRoot::new(Path::new(ROOT))))??)
    }

    /// Switches the mode.
    pub fn set_mode(&mut self, mode: Mode) -> Result<()> {
        self.maps.mode.set(mode, None)?;
        Ok(())
    }

    /// Packets counted so far.
    pub fn counted(&self, program: Program, reason: Reason) -> Result<u64> {
        Ok(self.maps.stats.get(program, reason)?.packets)
    }

    /// All packets counted so far; what is zero is left out.
    pub fn counts(&self) -> Result<Counts> {
        let mut counts = Counts::new();
        for program in Program::ALL {
            for reason in Reason::ALL {
                let packets = self.counted(program, reason)?;
                if packets > 0 {
                    counts.insert((program.name(), reason.name()), packets);
                }
            }
        }
        Ok(counts)
    }

    /// Packets of known flows that were taken so far, from pods and out of the tunnel.
    pub fn replayed(&self) -> Result<u64> {
        Ok(self.counted(Program::FromPod, Reason::Replayed)?
            + self.counted(Program::FromUnderlay, Reason::Replayed)?)
    }

    /// Packets of known flows that waited for a confirmation: the thread of the test that confirms
    /// decides how many, and on a busy machine it is late.
    pub fn unconfirmed(&self) -> Result<u64> {
        let counted = |program| self.counted(program, Reason::Unconfirmed);
        Ok(counted(Program::FromPod)? + counted(Program::FromUnderlay)?)
    }

    /// The flows packets are treated by now.
    pub fn usable_flows(&self) -> Result<Vec<(Key, Flow<[u32; 1]>)>> {
        let confirmed = self.maps.config.get()?.confirmed;
        self.flows_that(|flow, check, generation, now| {
            flow.usable(check, generation, now, confirmed).is_ok()
        })
    }

    /// Returns the flows seen recently, including those whose reverse flow is still missing.
    pub fn current_flows(&self) -> Result<Vec<(Key, Flow<[u32; 1]>)>> {
        self.flows_that(Flow::is_current)
    }

    fn flows_that(
        &self,
        holds: impl Fn(&Flow<[u32; 1]>, u32, u32, tick::Tick) -> bool,
    ) -> Result<Vec<(Key, Flow<[u32; 1]>)>> {
        let (generation, now) = (
            self.maps.mode.get()?.generation(),
            tick::tick(clock::now_ns()),
        );
        let mut flows = self.flows()?;
        flows.retain(|(key, flow)| holds(flow, flow.action.check(key), generation, now));
        Ok(flows)
    }

    /// The interface index of a pod's veth.
    pub fn veth_index(&self, pod: &Pod) -> Result<u32> {
        ifindex(&self.node, pod.veth())
    }

    /// Returns all learned IPv4 flows.
    pub fn flows(&self) -> Result<Vec<(Key, Flow<[u32; 1]>)>> {
        self.maps.flows.entries().map(|entry| Ok(entry?)).collect()
    }
}

impl Drop for BareNode {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn write_subnet_env(node: &Node, number: u8) -> Result<()> {
    let text = format!(
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.{number}.1/24\nFLANNEL_MTU={MTU}\n\
         FLANNEL_IPMASQ=false\n"
    );
    fs::create_dir_all(node.outside_path(STATE))?;
    Ok(fs::write(
        node.outside_path("/run/flannel/subnet.env"),
        text,
    )?)
}
