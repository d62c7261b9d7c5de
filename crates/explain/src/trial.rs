//! The programs' verdict on a synthetic packet, in the order in which such a packet meets them.

use std::{
    net::{IpAddr, SocketAddr},
    panic,
    sync::mpsc,
    thread,
};

use flannel_common::{
    abi::{
        entry_state::EntryState,
        maps::{FLOWS, FLOWS6},
        mode::Mode,
        node::FamilyConfig,
        program::Program,
        reason::Verdict,
    },
    flow::{arrival::Arrival, flow_key::FlowKey},
    packet::ETH_LEN,
    packet::addr::Mac,
};
use flannel_datapath::{DatapathError, PinRoot, attach, load::trial::Trial};
use flannel_flows::rows::FlowRow;
use flannel_host::family::Family;
use flannel_netlink::Link;

use super::{
    frame::{Ends, Fields, Outer, frame, tunnel_arrival, tunnelled},
    location::{Context, Location},
    snapshot::Snapshot,
    tried::Tried,
};

/// Ports of a packet where neither the question nor a known flow has any.
const PORTS: [u16; 2] = [40_000, 80];

/// A trial that a thread prepares while the node is read: the kernel's types and the object take
/// some 0.05 s, the verifier 0.1 s for each program.
pub(super) struct Preparation {
    programs: mpsc::Sender<Vec<Program>>,
    thread: thread::JoinHandle<Result<Trial, DatapathError>>,
}

impl Preparation {
    pub(super) fn begin(pins: &PinRoot, family: Family) -> Self {
        let (programs, wanted) = mpsc::channel();
        let pins = pins.clone();
        // Without an answer the node could not be read, and no program will be asked.
        let thread =
            thread::spawn(move || Trial::new(&pins, family, || wanted.recv().unwrap_or_default()));
        Self { programs, thread }
    }

    /// Lets it load the programs that a packet between these places is likely to meet.
    pub(super) fn load(&self, source: &Location, destination: &Location) {
        // The thread has failed if it does not listen; `finish` returns its error.
        let _ = self.programs.send(likely(source, destination));
    }

    fn finish(self) -> Result<Trial, DatapathError> {
        let Self { programs, thread } = self;
        drop(programs);
        thread
            .join()
            .unwrap_or_else(|panic| panic::resume_unwind(panic))
    }
}

/// The programs that a packet between these places is likely to meet. Others are loaded when they
/// are asked.
fn likely(source: &Location, destination: &Location) -> Vec<Program> {
    match (source, destination) {
        (Location::Peer(peer), _) if peer.entry.word.has(EntryState::DIRECT) => {
            vec![Program::FromUnderlay]
        }
        (Location::Peer(_), _) => vec![Program::FromUnderlay, Program::FromTunnel],
        (Location::Pod(_), Location::Pod(_) | Location::Unknown) => vec![Program::FromPod],
        (Location::Pod(_), _) => vec![Program::FromPod, Program::ToTunnel],
        _ => vec![Program::ToTunnel],
    }
}

/// Asks the programs the packet meets.
pub(super) fn run(
    facts: &Snapshot,
    around: &Context<'_>,
    preparation: Preparation,
) -> Result<Vec<Tried>, DatapathError> {
    let ends = ends(facts);
    let external = facts.config().map_or(0, |config| config.underlay_ifindex);
    let arrival = tunnel_arrival(Mac::default(), external);
    let mut trying = ProgramRun {
        trial: preparation.finish()?,
        pins: around.pins,
        arrival,
        tried: Vec::new(),
    };
    for flow in facts.flows.iter().flatten() {
        trying.copy(flow)?;
    }
    let Some(config) = facts.config() else {
        return Ok(Vec::new());
    };
    trying.ask_of_sender(facts, &ends)?;
    trying.ask_of_tunnel(facts, &ends)?;
    trying.ask_of_arrival(facts, around, config, &ends)?;
    Ok(trying.tried)
}

/// Returns true if the kernel's route leads into this device.
fn leads_to(facts: &Snapshot, device: &Link) -> bool {
    matches!(&facts.route, Some(Ok(route)) if route.oif == Some(device.index))
}

/// Whose packet it is: one of the known flow, if there is one.
fn ends(facts: &Snapshot) -> Ends {
    let question = &facts.question;
    let known = facts.flows[0]
        .as_ref()
        .map(|flow| [flow.source.port(), flow.destination.port()]);
    let [source, destination] = known.unwrap_or(PORTS);
    Ends {
        source: SocketAddr::new(question.source, question.sport.unwrap_or(source)),
        destination: SocketAddr::new(question.destination, question.dport.unwrap_or(destination)),
        protocol: question.protocol(),
        fields: facts.flows[0]
            .as_ref()
            .map_or(Fields::USUAL, |flow| Fields {
                tos: flow.tos,
                ttl: flow.ttl,
                flow_label: flow.flow_label,
            }),
    }
}

struct ProgramRun<'a> {
    trial: Trial,
    pins: &'a PinRoot,
    /// The packet asked about arrives as those of its flow.
    arrival: Arrival,
    tried: Vec<Tried>,
}

impl ProgramRun<'_> {
    /// Asks the program of the pod that sends.
    fn ask_of_sender(&mut self, facts: &Snapshot, ends: &Ends) -> Result<(), DatapathError> {
        if let Some(pod) = facts.sender() {
            let next = match &facts.destination {
                Location::Pod(to)
                    if to.routed_by() == pod.routed_by() && !facts.is_translated() =>
                {
                    to.mac
                }
                _ => pod.gateway_mac(),
            };
            self.ask(
                Program::FromPod,
                &pod.veth,
                &frame(next.unwrap_or_default(), pod.mac.unwrap_or_default(), ends),
            )?;
        }
        Ok(())
    }

    /// Asks the program of the tunnel device to which the kernel sends the packet.
    fn ask_of_tunnel(&mut self, facts: &Snapshot, ends: &Ends) -> Result<(), DatapathError> {
        if let (Location::Peer(_), Some(tunnel)) = (&facts.destination, &facts.tunnel)
            && let Some(device) = &tunnel.device
            && leads_to(facts, device)
        {
            let onward = SocketAddr::new(
                facts.onward.address,
                facts.onward.port.unwrap_or(ends.destination.port()),
            );
            let ends = Ends {
                destination: onward,
                ..*ends
            };
            let packet = frame(
                tunnel.neighbour.unwrap_or_default(),
                device.mac.unwrap_or_default(),
                &ends,
            );
            self.ask(Program::ToTunnel, device, &packet)?;
        }
        Ok(())
    }

    /// Asks the programs that a packet from a peer meets.
    fn ask_of_arrival(
        &mut self,
        facts: &Snapshot,
        around: &Context<'_>,
        config: &FamilyConfig,
        ends: &Ends,
    ) -> Result<(), DatapathError> {
        let links = |index: u32| around.links.get(&index);
        if let Location::Peer(peer) = &facts.source
            && let Some(device) = links(peer.entry.oif)
            && peer.entry.word.has(EntryState::DIRECT)
        {
            let packet = frame(device.mac.unwrap_or_default(), Mac::default(), ends);
            if peer.entry.oif == config.tunnel_ifindex {
                self.ask(Program::FromL3Tunnel, device, &packet[ETH_LEN..])?;
            } else {
                self.ask(Program::FromUnderlay, device, &packet)?;
            }
            return Ok(());
        }
        if let (Location::Peer(peer), Some(external)) =
            (&facts.source, links(config.underlay_ifindex))
        {
            let at_external = external.mac.unwrap_or_default();
            let inner = frame(config.vtep_mac, peer.entry.mac, ends);
            let [source, destination] = [peer.entry.vtep, config.vtep].map(IpAddr::from);
            let outer = Outer {
                source,
                destination,
                port: config.port,
                vni: config.vni,
            };
            let packet = tunnelled(at_external, Mac::default(), &outer, &inner);
            self.ask(Program::FromUnderlay, external, &packet)?;
            if let Some(device) = links(config.tunnel_ifindex)
                && facts
                    .node
                    .as_ref()
                    .is_ok_and(|node| node.mode.mode() == Mode::Fast)
            {
                self.ask(Program::FromTunnel, device, &inner)?;
            }
        }
        Ok(())
    }

    /// Lets the programs know a flow.
    fn copy(&mut self, flow: &FlowRow) -> Result<(), DatapathError> {
        let protocol = u32::from(if flow.protocol == "tcp" { 6_u8 } else { 17 });
        let [a, b] = [flow.source, flow.destination].map(|end| end.port().to_be_bytes());
        let ports = u32::from_ne_bytes([a[0], a[1], b[0], b[1]]);
        let device = flow.device;
        match (flow.source.ip(), flow.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let [source, destination] =
                    [source, destination].map(|ip| [u32::from_ne_bytes(ip.octets())]);
                self.trial.copy_flow(
                    self.pins,
                    FLOWS,
                    &FlowKey {
                        source,
                        destination,
                        ports,
                        protocol,
                        device,
                    },
                    self.arrival,
                )?;
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let [source, destination] = [source, destination].map(|ip| words(ip.octets()));
                self.trial.copy_flow(
                    self.pins,
                    FLOWS6,
                    &FlowKey {
                        source,
                        destination,
                        ports,
                        protocol,
                        device,
                    },
                    self.arrival,
                )?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Asks a program, unless one before it took the packet.
    fn ask(&mut self, program: Program, link: &Link, packet: &[u8]) -> Result<(), DatapathError> {
        if self
            .tried
            .iter()
            .any(|tried| tried.attached && tried.verdict() != Verdict::Pass)
        {
            return Ok(());
        }
        let reasons = self.trial.run(program, packet, link.index)?;
        let attached = attach::is_on(self.pins, program, link.index);
        // One that the backend does not need is not pinned either.
        let other_build = attached && !self.trial.is_as_pinned(program, self.pins);
        self.tried.push(Tried {
            program,
            device: link.name.clone(),
            reasons,
            attached,
            other_build,
        });
        Ok(())
    }
}

/// The four words of an IPv6 address, as they lie in a packet.
fn words(octets: [u8; 16]) -> [u32; 4] {
    std::array::from_fn(|word| {
        u32::from_ne_bytes(std::array::from_fn(|byte| octets[word * 4 + byte]))
    })
}
