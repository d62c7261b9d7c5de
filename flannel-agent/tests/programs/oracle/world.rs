//! The state of a node in the terms of the documentation, by which the oracle judges packets.
//! [`super::stage`] writes it into the maps.

use std::net::IpAddr;

use flannel_common::abi::{guard::GuardMode, mode::Mode, reason::Reason};

use crate::packets::{Net, V4, V6};

/// Addresses, ports and protocol of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tuple {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) ports: [u16; 2],
    pub(super) protocol: u8,
}

impl Tuple {
    pub(super) const fn reversed(self) -> Self {
        let [source, destination] = self.ports;
        Self {
            source: self.destination,
            destination: self.source,
            ports: [destination, source],
            ..self
        }
    }
}

/// The state of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agent {
    Beats,
    /// Not recently enough for flows to be replayed.
    Late,
    Gone,
    NotConfigured,
}

/// The kind of path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    Plainly,
    ByTheKernel,
    Directly,
}

/// The last observation of the kernel's own packets to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    /// Packets of up to this number of bytes left plainly.
    UpTo(u32),
    /// The same, too long ago.
    LongAgo(u32),
    /// The same, before the peer's entry was rewritten.
    OfAnotherPath(u32),
    /// One that differed, a moment ago.
    Other,
}

/// A peer, by its subnet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) subnet: u8,
    pub(super) vtep: IpAddr,
    pub(super) mac: [u8; 6],
    pub(super) reached: Reached,
    pub(super) mtu: u32,
    pub(super) by_underlay: bool,
    pub(super) seen: Seen,
}

/// An address that is known as a VTEP and belongs to no peer of the peer map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vtep {
    pub(super) address: IpAddr,
    /// The subnet of a peer whose entry is not valid now; none for one whose subnet has no number.
    pub(super) subnet: Option<u8>,
}

/// By what the packets of a flow leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Tunnel,
    Pod,
    /// To a peer on our link.
    Link,
    Unknown,
}

/// The validity of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Usable,
    Expired,
    OtherGeneration,
    /// Its value is not this key's.
    Torn,
    /// Its way back was not seen, or too long ago.
    OneSided,
    Closed,
    /// Learned since the agent last confirmed what was learned.
    Unconfirmed,
    /// Not learned, but the SYN-ACK of its connection was.
    Expected,
}

/// A flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) enters: Tuple,
    pub(super) enters_by: u32,
    pub(super) leaves: Tuple,
    pub(super) leaves_by: u32,
    pub(super) way: Way,
    /// Ethernet destination and source of the frames seen, and of those the pod gets.
    pub(super) frame: [u8; 12],
    pub(super) exit_frame: [u8; 12],
    /// TOS (of which the DSCP counts) and TTL of the packets seen; their flow label was zero.
    pub(super) tos: u8,
    pub(super) ttl: u8,
    pub(super) ttl_step: u8,
    pub(super) mtu: u16,
    pub(super) takes_merged: bool,
    pub(super) needs_mirror: bool,
    /// Learned from a handshake, and not refreshed since.
    pub(super) on_probation: bool,
    pub(super) state: State,
}

impl Known {
    /// The flow as there may be one: what is expected is on probation.
    pub(super) const fn consistent(self) -> Self {
        let on_probation = self.on_probation || matches!(self.state, State::Expected);
        Self {
            on_probation,
            ..self
        }
    }

    /// Returns the reason why the kernel gets the next packet, `is_due` by its sequence number;
    /// `None` if the flow is replayed.
    pub(super) const fn stopped(&self, is_due: bool) -> Option<Reason> {
        let usable = if is_due {
            Some(Reason::Refreshing)
        } else {
            None
        };
        match self.state {
            State::Usable => usable,
            State::OneSided => {
                if self.needs_mirror {
                    Some(Reason::ReverseMissing)
                } else {
                    usable
                }
            }
            State::Closed => Some(Reason::FlowClosed),
            State::Unconfirmed => Some(Reason::Unconfirmed),
            State::Expected => Some(Reason::Handshake),
            State::Expired | State::OtherGeneration | State::Torn => Some(Reason::Refreshing),
        }
    }
}

/// A node with its peers and flows.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each varies or does not, whatever the others do"
)]
pub(super) struct World {
    pub(super) net: Net,
    /// Without a tunnel every peer is on our own link.
    pub(super) has_tunnel: bool,
    pub(super) mode: Mode,
    pub(super) agent: Agent,
    /// Protocols whose flows are learned.
    pub(super) learns: Vec<u8>,
    /// A port whose flows are never learned.
    pub(super) helper_port: u16,
    pub(super) pod_sends: bool,
    /// No filter of others is on the ingress of the external interface.
    pub(super) from_underlay: bool,
    /// Those who make new flows have tokens left.
    pub(super) has_tokens: bool,
    pub(super) peers: Vec<Peer>,
    /// Senders of tunnel packets in addition to the peers.
    pub(super) others: Vec<Vtep>,
    /// Tunnel devices whose packets may come from another address than their node's.
    pub(super) elsewhere: Vec<[u8; 6]>,
    /// Modes of the guard: for packets of unknown senders, and for peers that send with foreign
    /// addresses.
    pub(super) guard: [GuardMode; 2],
    pub(super) flows: Vec<Known>,
}

pub(super) const OUR_SUBNET: u8 = 1;
pub(super) const UNLEASED: u8 = 10;
pub(super) const FORMER_SUBNET: u8 = 12;
/// The last byte of the VTEP of a peer whose subnet has no number.
pub(super) const UNNUMBERED_HOST: u8 = 13;
/// A device that no packet of the suite comes by.
pub(super) const NAT_VTEPS: u32 = 77;

impl World {
    /// The node as packets of the other family find it.
    pub(super) fn of_the_other_family(&self) -> Self {
        let net = if self.net.our_vtep.is_ipv4() { V6 } else { V4 };
        let (others, elsewhere, learns) = (Vec::new(), Vec::new(), self.learns.clone());
        Self {
            net,
            others,
            elsewhere,
            learns,
            peers: Vec::new(),
            flows: Vec::new(),
            ..*self
        }
    }

    /// The peer of the subnet in which an address lies.
    pub(super) fn peer_of(&self, address: IpAddr) -> Option<&Peer> {
        let subnet = self.subnet_of(address)?;
        self.peers
            .iter()
            .find(|peer| u16::from(peer.subnet) == subnet)
    }

    /// The peer of the subnet in which an address lies, if packets to and from it take a plain
    /// route by the external interface.
    pub(super) fn direct_peer_of(&self, address: IpAddr) -> Option<&Peer> {
        self.peer_of(address)
            .filter(|peer| peer.reached == Reached::Directly && peer.by_underlay)
    }

    /// The VTEP of whom the peer map has in the subnet of an address, in a valid entry or not.
    pub(super) fn owner_of(&self, address: IpAddr) -> Option<IpAddr> {
        let subnet = self.subnet_of(address)?;
        let other = self
            .others
            .iter()
            .find(|other| other.subnet.map(u16::from) == Some(subnet));
        self.peer_of(address)
            .map(|peer| peer.vtep)
            .or_else(|| other.map(|other| other.address))
    }

    /// The VTEP with this address.
    pub(super) fn vtep(&self, address: IpAddr) -> Option<Vtep> {
        let peers = self.peers.iter().map(|peer| Vtep {
            address: peer.vtep,
            subnet: Some(peer.subnet),
        });
        peers
            .chain(self.others.iter().copied())
            .find(|vtep| vtep.address == address)
    }

    /// The number of the subnet in which an address lies.
    fn subnet_of(&self, address: IpAddr) -> Option<u16> {
        match (address, self.net.network) {
            (IpAddr::V4(address), IpAddr::V4(network)) => {
                let [address, network] = [address.octets(), network.octets()];
                (address[..2] == network[..2]).then_some(u16::from(address[2]))
            }
            (IpAddr::V6(address), IpAddr::V6(network)) => {
                let [address, network] = [address.segments(), network.segments()];
                (address[..3] == network[..3] && address[3] < 0x100).then_some(address[3])
            }
            _ => None,
        }
    }

    /// The flow of packets that enter by this device.
    pub(super) fn flow(&self, enters: &Tuple, by: u32) -> Option<(usize, &Known)> {
        self.flows
            .iter()
            .enumerate()
            .find(|(_, flow)| flow.enters == *enters && flow.enters_by == by)
    }
}

/// An address on the node's segment.
pub(super) fn host(ours: IpAddr, number: u8) -> IpAddr {
    let mut octets = octets(ours);
    *octets.last_mut().expect("an address has bytes") = number;
    address(&octets)
}

/// A pod's address.
pub(super) fn pod(net: Net, subnet: u8, number: u8) -> IpAddr {
    let mut octets = octets(net.network);
    let at = if octets.len() == 4 { 2 } else { 7 };
    octets[at] = subnet;
    *octets.last_mut().expect("an address has bytes") = number;
    address(&octets)
}

/// The bytes of an address.
pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The address of four or sixteen bytes.
pub(super) fn address(bytes: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(bytes) {
        Ok(bytes) => bytes.into(),
        Err(_) => <[u8; 16]>::try_from(bytes)
            .expect("an address has four or sixteen bytes")
            .into(),
    }
}
