//! Nodes: in every mode, with peers and flows of every kind.

use std::net::IpAddr;

use flannel_common::abi::{guard::GuardMode, mode::Mode};

use crate::{
    oracle::{
        random::Random,
        world::{
            Agent, FORMER_SUBNET, Known, NAT_VTEPS, OUR_SUBNET, Peer, Reached, Seen, State, Tuple,
            UNLEASED, UNNUMBERED_HOST, Vtep, Way, World, address, host, octets, pod,
        },
    },
    packets::{LO, Net, OUR_MAC},
};

const POD: [u8; 6] = [2, 0, 0, 0, 1, 5];
const BRIDGE: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// `lo` has no address, and takes what is to none for its own.
const UNDERLAY: [u8; 6] = [0; 6];
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 99];

impl World {
    /// A node as chance has it.
    pub(in crate::oracle) fn random(random: &mut Random, net: Net) -> Self {
        let has_tunnel = random.percent(90);
        Self::with(random, net, has_tunnel)
    }

    fn with(random: &mut Random, net: Net, has_tunnel: bool) -> Self {
        let ways = [
            (7, Reached::Plainly),
            (8, Reached::ByTheKernel),
            (9, Reached::Directly),
            (11, Reached::Plainly),
        ];
        let peers =
            ways.map(|(subnet, way)| (subnet, if has_tunnel { way } else { Reached::Directly }));
        let mut world = Self {
            net,
            has_tunnel,
            mode: random.pick(
                &[
                    vec![Mode::Fast; 14],
                    vec![Mode::Encap; 4],
                    vec![Mode::Kernel; 2],
                ]
                .concat(),
            ),
            agent: random.pick(
                &[
                    vec![Agent::Beats; 17],
                    vec![Agent::Late, Agent::Gone, Agent::NotConfigured],
                ]
                .concat(),
            ),
            learns: random.pick(&[
                vec![6, 17],
                vec![6, 17],
                vec![6, 17],
                vec![6],
                vec![17],
                vec![],
            ]),
            helper_port: 21,
            pod_sends: random.percent(80),
            from_underlay: random.percent(85),
            has_tokens: random.percent(80),
            peers: peers
                .map(|(subnet, reached)| peer(random, net, subnet, reached))
                .to_vec(),
            others: vec![
                Vtep {
                    address: host(net.our_vtep, FORMER_SUBNET),
                    subnet: Some(FORMER_SUBNET),
                },
                Vtep {
                    address: host(net.our_vtep, UNNUMBERED_HOST),
                    subnet: None,
                },
            ],
            elsewhere: vec![[2, 0, 0, 0, 0, 8]],
            guard: [random.pick(&GuardMode::ALL), random.pick(&GuardMode::ALL)],
            flows: Vec::new(),
        };
        for number in 0..40 {
            world.learn(random, number);
        }
        world
    }

    /// A node of mode `fast` with a tunnel and nothing in the way.
    pub(in crate::oracle) fn in_order(random: &mut Random, net: Net) -> Self {
        let world = Self::with(random, net, true);
        let learns = vec![6, 17];
        Self {
            mode: Mode::Fast,
            agent: Agent::Beats,
            learns,
            pod_sends: true,
            from_underlay: true,
            has_tokens: true,
            ..world
        }
    }

    /// Adds a flow, and for most of them its way back.
    fn learn(&mut self, random: &mut Random, number: u16) {
        let (enters, leaves) = self.tuples(random, number);
        let outside = leaves.destination;
        let peer = self.peer_of(outside).map_or(NOBODY, |peer| peer.mac);
        let on_link = self
            .peer_of(outside)
            .is_some_and(|peer| peer.reached == Reached::Directly);
        let is_direct = on_link && random.percent(85);
        let local = random.percent(20);
        let (way, exit_frame) = match (local, is_direct) {
            (true, _) => (Way::Pod, frame(POD, BRIDGE)),
            (false, true) => (Way::Link, frame(peer, UNDERLAY)),
            (false, false) => (Way::Tunnel, [0; 12]),
        };
        let random_tos = random.byte();
        let there = Known {
            enters,
            enters_by: if random.percent(4) { NAT_VTEPS } else { LO },
            leaves,
            leaves_by: if local || random.percent(2) {
                NAT_VTEPS
            } else {
                LO
            },
            way,
            frame: frame(BRIDGE, POD),
            exit_frame,
            tos: random.pick(&[0, 0, 0xb8, random_tos]),
            ttl: random.pick(&[64, 64, 63, 255]),
            ttl_step: random.pick(&[0, 1, 1]),
            mtu: random.pick(&[1430, 1430, 1430, 150, 60]),
            needs_mirror: leaves.protocol == 6 || random.percent(30),
            takes_merged: random.percent(80),
            on_probation: random.percent(30),
            state: state(random),
        }
        .consistent();
        let back = Known {
            enters: leaves.reversed(),
            enters_by: LO,
            leaves: enters.reversed(),
            leaves_by: there.enters_by,
            way: random.pick(&WAYS_BACK),
            frame: if is_direct {
                frame(UNDERLAY, peer)
            } else {
                frame(OUR_MAC.0, peer)
            },
            exit_frame: frame(POD, BRIDGE),
            on_probation: random.percent(30),
            state: state(random),
            ..there
        }
        .consistent();
        self.flows.push(there);
        if random.percent(90) {
            self.flows.push(back);
        }
    }

    /// A flow of a pod, as it enters and as it leaves.
    fn tuples(&self, random: &mut Random, number: u16) -> (Tuple, Tuple) {
        let net = self.net;
        let inside = pod(net, OUR_SUBNET, 5);
        let subnet = random.pick(&[7, 7, 7, 7, 11, 11, 8, 9, 9, UNLEASED, FORMER_SUBNET]);
        let outside = if random.percent(3) {
            net.outside[0]
        } else {
            pod(net, subnet, 9)
        };
        let port = if random.percent(5) {
            self.helper_port
        } else {
            8080
        };
        let protocol = if random.percent(60) { 6 } else { 17 };
        let leaves = Tuple {
            source: inside,
            destination: outside,
            ports: [40_000 + number, port],
            protocol,
        };
        let service = Tuple {
            destination: service(net),
            ports: [leaves.ports[0], 80],
            ..leaves
        };
        let masked = Tuple {
            source: pod(net, OUR_SUBNET, 0),
            ports: [60_000 + number, port],
            ..leaves
        };
        random.pick(&[(leaves, leaves), (service, leaves), (leaves, masked)])
    }
}

const WAYS_BACK: [Way; 6] = [
    Way::Pod,
    Way::Pod,
    Way::Pod,
    Way::Pod,
    Way::Tunnel,
    Way::Unknown,
];

fn state(random: &mut Random) -> State {
    let usable = vec![State::Usable; 12];
    let others = vec![
        State::Expired,
        State::OtherGeneration,
        State::Torn,
        State::OneSided,
        State::OneSided,
        State::Closed,
        State::Unconfirmed,
        State::Expected,
    ];
    random.pick(&[usable, others].concat())
}

fn peer(random: &mut Random, net: Net, subnet: u8, reached: Reached) -> Peer {
    let largest = random.pick(&[120, 200, 1000, 1500, 1500]);
    let up_to = Seen::UpTo(largest);
    let seen = random.pick(&[
        up_to,
        up_to,
        up_to,
        up_to,
        Seen::Nothing,
        Seen::LongAgo(largest),
        Seen::OfAnotherPath(largest),
        Seen::Other,
    ]);
    Peer {
        subnet,
        vtep: host(net.our_vtep, subnet),
        mac: [2, 0, 0, 0, 0, subnet],
        reached,
        mtu: random.pick(&[1500, 1500, 1500, 300]),
        by_underlay: random.percent(90),
        seen,
    }
}

fn service(net: Net) -> IpAddr {
    let mut octets = octets(net.network);
    let at = if octets.len() == 4 { 1 } else { 5 };
    octets[at] = 0x96;
    *octets.last_mut().expect("an address has bytes") = 1;
    address(&octets)
}

fn frame(to: [u8; 6], from: [u8; 6]) -> [u8; 12] {
    [to, from].concat().try_into().expect("twice six bytes")
}
