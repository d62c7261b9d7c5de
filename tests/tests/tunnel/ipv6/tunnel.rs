//! Two nodes on one cable with an IPv6 tunnel between them: the vxlan devices, their entries and the programs' maps are
//! made by hand, so that the datapath alone is under test.

use std::{collections::BTreeSet, fs, net::Ipv6Addr, path::Path, time::Duration};

use anyhow::{Result, anyhow, ensure};
use flannel_agent::datapath::{AttachKind, Attachments, DatapathError, Hook, Maps, PinRoot, Subnets, clock, load};
use flannel_common::{
    addr::Mac,
    entry_state::EntryState,
    mode::Mode,
    node::{FamilyConfig, NodeConfig},
    peer::{PeerEntry, VtepEntry},
    program::Program,
    reason::Reason,
    stats::Counter,
};
use flannel_tests::{Lab, Node, Pod, eventually, hooks, not_run, topology::Two};

/// The tunnel device.
const DEVICE: &str = "flannel-v6.1";
const NETWORK: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 0);
const SUBNETS: u32 = 256;

/// One node of the tunnel.
pub(crate) struct FlowKey {
    pub(crate) vtep: Ipv6Addr,
    /// The other node's number.
    peer: u8,
    pub(crate) node: Node,
    pub(crate) pod: Pod,
    maps: Maps,
    // Detaches nothing when it goes; the namespaces take the programs with them.
    _attachments: Attachments,
}

/// Both nodes, in mode `encap`, each with the other as its peer.
pub(crate) struct Tunnel {
    pub(crate) near: FlowKey,
    pub(crate) far: FlowKey,
    // Last: the lab goes when its handles are of no use any more.
    _lab: Lab,
}

impl Tunnel {
    /// None where there are no programs to load, which is said.
    pub(crate) fn new(name: &str) -> Result<Option<Self>> {
        let lab = Lab::new(name)?;
        let net = Two::new(&lab)?;
        let (near, far) = (FlowKey::new(&net.a, 1, 2), FlowKey::new(&net.b, 2, 1));
        match (near, far) {
            (Ok(near), Ok(far)) => Ok(Some(Self { near, far, _lab: lab }.connected()?)),
            (Err(error), _) | (_, Err(error)) => match error.downcast_ref() {
                Some(DatapathError::Stub) => {
                    not_run(name, "built with the stub object; use `cargo xtask test`");
                    Ok(None)
                }
                _ => Err(error),
            },
        }
    }

    fn connected(self) -> Result<Self> {
        let to = self.far.pod.ip();
        eventually("a ping through the tunnel", Duration::from_secs(5), || self.near.pod.ping(to).map(drop))?;
        Ok(self)
    }

    /// Puts both nodes in a mode.
    pub(crate) fn set_mode(&mut self, mode: Mode) -> Result<()> {
        self.near.maps.mode.set(mode, None)?;
        self.far.maps.mode.set(mode, None)?;
        Ok(())
    }

    /// Sets one cable end of each node up.
    pub(crate) fn set_offloads(&self, near: &str, far: &str) -> Result<()> {
        self.near.node.sh(&format!("ethtool -K eth0 {near}"))?;
        self.far.node.sh(&format!("ethtool -K eth0 {far}"))?;
        Ok(())
    }
}

impl FlowKey {
    fn new(node: &Node, number: u8, peer: u8) -> Result<Self> {
        node.sh(&format!("ip address add {}/64 dev eth0 nodad", vtep(number)))?;
        add_device(node, number, peer)?;
        let env = format!("FLANNEL_IPV6_SUBNET=fd00:10:244:{number}::1/64\nFLANNEL_MTU=1430\n");
        fs::create_dir_all(node.outside_path("/run/flannel"))?;
        fs::write(node.outside_path("/run/flannel/subnet.env"), env)?;
        let pod = node.add_pod("p1")?;
        let hooks = [(Program::ToTunnel, DEVICE), (Program::FromUnderlay, "eth0"), (Program::ToUnderlay, "eth0")];
        let hooks: BTreeSet<Hook> = hooks
            .into_iter()
            .map(|(program, device)| {
                Ok(Hook { program, ifindex: hooks::ifindex(node, device)?, ifname: device.to_owned() })
            })
            .collect::<Result<_>>()?;
        let config = family(node, number)?;
        let (maps, attachments) = node.enter(|| datapath(config, peer, &hooks))??;
        Ok(Self { vtep: vtep(number), peer, node: node.clone(), pod, maps, _attachments: attachments })
    }

    /// Gives the peer another next hop.
    pub(crate) fn write_peer(&mut self, next_hop: Ipv6Addr) -> Result<()> {
        write_peer(&mut self.maps, self.peer, next_hop)
    }

    /// Returns the packets and bytes that a program counted under a reason.
    pub(crate) fn tally(&self, program: Program, reason: Reason) -> Result<Counter> {
        Ok(self.maps.stats.get(program, reason)?)
    }

    /// Packets the programs encapsulated.
    pub(crate) fn encapsulated(&self) -> Result<u64> {
        Ok(self.tally(Program::ToTunnel, Reason::Encapsulated)?.packets)
    }
}

fn vtep(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, number.into())
}

const fn mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

/// The device as the agent makes it, and stock flannel's entries for one peer.
fn add_device(node: &Node, number: u8, peer: u8) -> Result<()> {
    let (local, remote) = (vtep(number), vtep(peer));
    let (mac, peer_mac, base) = (mac(number), mac(peer), format!("fd00:10:244:{peer}::"));
    for line in [
        format!(
            "ip link add {DEVICE} address {mac} type vxlan id 1 dstport 8472 local {local} dev eth0 nolearning udp6zerocsumrx"
        ),
        format!("ip address add fd00:10:244:{number}::/128 dev {DEVICE} nodad"),
        format!("ip link set {DEVICE} up"),
        format!("ip neigh replace {base} lladdr {peer_mac} dev {DEVICE} nud permanent"),
        format!("bridge fdb replace {peer_mac} dev {DEVICE} dst {remote} self permanent"),
        format!("ip route replace {base}/64 via {base} dev {DEVICE} onlink"),
    ] {
        node.sh(&line)?;
    }
    let mtu = fs::read_to_string(node.outside_path(format!("/sys/class/net/{DEVICE}/mtu")))?;
    ensure!(mtu.trim() == "1430", "the kernel takes 70 bytes off for an IPv6 tunnel: {mtu}");
    Ok(())
}

fn family(node: &Node, number: u8) -> Result<FamilyConfig> {
    Ok(FamilyConfig {
        network: NETWORK.into(),
        vtep: vtep(number).into(),
        vtep_mac: mac(number),
        port: 8472_u16.to_be_bytes(),
        vni: 1,
        subnet_shift: 64,
        subnet_count: SUBNETS,
        tunnel_ifindex: hooks::ifindex(node, DEVICE)?,
        underlay_ifindex: hooks::ifindex(node, "eth0")?,
        source_port_min: 32768,
        source_port_max: 60999,
    })
}

/// Loads the programs, writes their maps, attaches them. Runs inside the node.
fn datapath(config: FamilyConfig, peer: u8, hooks: &BTreeSet<Hook>) -> Result<(Maps, Attachments)> {
    let pins = PinRoot::new(Path::new("/sys/fs/bpf/flannel"));
    load(&pins, Subnets { v4: 0, v6: u64::from(SUBNETS) }, None)?;
    let mut maps = Maps::open(&pins)?;
    maps.config.write(NodeConfig { v6: config, ..NodeConfig::default() }, clock::now_ns())?;
    write_peer(&mut maps, peer, vtep(peer))?;
    maps.mode.set(Mode::Encap, None)?;
    let mut attachments = Attachments::new(pins, AttachKind::detect(), 1, Path::new("/run/flannel"));
    match attachments.apply(hooks).into_iter().next() {
        Some((_, error)) => Err(anyhow!(error).context("attaching")),
        None => Ok((maps, attachments)),
    }
}

/// A peer with a plain path by this next hop.
fn write_peer(maps: &mut Maps, peer: u8, next_hop: Ipv6Addr) -> Result<()> {
    let oif = maps.config.get()?.v6.underlay_ifindex;
    let vtep = vtep(peer).into();
    let entry = PeerEntry { vtep, next_hop: next_hop.into(), mac: mac(peer), oif, mtu: 1500, ..PeerEntry::default() };
    maps.peers6.write(peer.into(), entry, EntryState::PLAIN)?;
    maps.vteps.write(vtep, VtepEntry { index: peer.into(), reserved: 0 })?;
    Ok(())
}
