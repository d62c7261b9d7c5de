use std::net::IpAddr;

use flannel_common::{
    abi::{
        entry_state::EntryState,
        fast::PodEntry,
        guard::GuardWord,
        mode::{Mode, ModeWord},
        node::{FamilyConfig, NodeConfig},
        peer::{PathProbe, PeerEntry},
        program::Program,
    },
    packet::addr::{Addr, Mac},
};
use flannel_datapath::maps::peers::PinnedPeer;
use flannel_flows::rows::FlowRow;
use flannel_netlink::{Link, Neighbour, RouteAnswer, RouteType};
use flannel_status::{EchoState, ModeStatus, PeerEchoStatus, PeerStatus, Status};

use super::*;
use crate::{
    location::LocalPod,
    nat::{MasqueradeAnswer, Service, ServiceAnswer},
    question::{Question, Transport},
    snapshot::{CommandsRoute, FirewallAnswer, Onward, PinnedNode, Tunnel},
    trace::{PacketDirection, TraceDrop, TracedRule},
};

const NOW: u64 = 1 << 40;
const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);
const UNDERLAY: u32 = 2;
const TUNNEL: u32 = 3;
const CNI0: u32 = 4;
const VETH: u32 = 5;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn link(index: u32, name: &str, mtu: u32) -> Link {
    Link {
        mac: Some(Mac([2, 0, 0, 0, 0, 1])),
        ..Link::ethernet(index, name, mtu)
    }
}

fn answer(oif: u32, gateway: &str) -> RouteAnswer {
    RouteAnswer {
        kind: RouteType::Unicast,
        oif: Some(oif),
        gateway: Some(ip(gateway)),
        mtu: None,
        hops: Vec::new(),
        nexthop: None,
        lwtunnel: false,
        src: None,
    }
}

fn peer(flags: u32) -> PinnedPeer {
    let word = EntryState::new(EntryState::VALID | flags, 1);
    let vtep = ip("192.168.1.12").into();
    let entry = PeerEntry {
        word,
        vtep,
        mac: PEER_MAC,
        next_hop: vtep,
        oif: UNDERLAY,
        ..PeerEntry::default()
    };
    PinnedPeer {
        index: 9,
        subnet: "10.244.9.0/24".parse().expect("a prefix"),
        entry,
    }
}

fn tried(program: Program, reason: Reason) -> Tried {
    Tried {
        program,
        device: "device".to_owned(),
        attached: true,
        reasons: vec![reason],
        other_build: false,
    }
}

fn tunnel() -> Tunnel {
    Tunnel {
        peer: peer(EntryState::PLAIN),
        device: Some(link(TUNNEL, "flannel.1", 1450)),
        neighbour: Some(PEER_MAC),
        fdb: Some(ip("192.168.1.12")),
        outer: Ok(answer(UNDERLAY, "192.168.1.1")),
        external: Some(link(UNDERLAY, "eth0", 1500)),
        outlets: vec![link(UNDERLAY, "eth0", 1500)],
        ecmp_paths: Vec::new(),
        next_hop: None,
    }
}

/// From a pod to a peer's pod, with everything as it should be, in mode `encap`.
fn sound() -> Snapshot {
    let config = FamilyConfig {
        port: 8472_u16.to_be_bytes(),
        tunnel_ifindex: TUNNEL,
        underlay_ifindex: UNDERLAY,
        ..FamilyConfig::default()
    };
    let node = NodeConfig {
        word: EntryState::new(EntryState::VALID, 1),
        heartbeat_ns: NOW,
        v4: config,
        ..NodeConfig::default()
    };
    let pod = LocalPod {
        veth: link(VETH, "veth1", 1450),
        bridge: Some(link(CNI0, "cni0", 1450)),
        mac: None,
        entry: None,
    };
    Snapshot {
        question: Question {
            source: ip("10.244.1.2"),
            destination: ip("10.244.9.2"),
            transport: Transport::Tcp,
            sport: None,
            dport: None,
        },
        source: Location::Pod(Box::new(pod)),
        onward: Onward {
            address: ip("10.244.9.2"),
            port: None,
            is_learned: false,
        },
        service: None,
        masquerade: None,
        masquerades: false,
        destination: Location::Peer(peer(EntryState::PLAIN)),
        config: Some(node),
        node: Ok(PinnedNode {
            mode: ModeWord::new(Mode::Encap, None, 1),
            config: node,
            guard: GuardWord::default().in_force(),
        }),
        route: Some(Ok(answer(TUNNEL, "10.244.9.0"))),
        commands: None,
        carrier: None,
        firewall: None,
        route_device: Some("flannel.1".to_owned()),
        tunnel: Some(tunnel()),
        flows: [None, None],
        tried: Ok(vec![tried(Program::ToTunnel, Reason::PathUnseen)]),
        trace: None,
        status: None,
        now_ns: NOW,
        now_unix: 1_000,
    }
}

/// The story of a packet after a change to its way.
fn after(change: impl FnOnce(&mut Snapshot)) -> Report {
    let mut facts = sound();
    change(&mut facts);
    build(&facts)
}

fn after_tunnel(change: impl FnOnce(&mut Tunnel)) -> Report {
    after(|facts| change(facts.tunnel.as_mut().expect("a tunnel")))
}

/// Returns the state of the step with a topic.
fn state(story: &Report, topic: &str) -> StepState {
    let step = story.steps.iter().find(|step| step.topic == topic);
    step.map_or_else(|| panic!("no {topic} in {story:#?}"), |step| step.state)
}

#[test]
fn a_sound_way_has_only_good_steps() {
    let story = after(|_| {});
    assert!(
        story.steps.iter().all(|step| step.state == StepState::Ok),
        "{story:#?}"
    );
    assert_eq!(
        (story.verdict.reaches, story.verdict.way),
        (Some(true), PacketWay::Kernel)
    );
    let topics: Vec<_> = story.steps.iter().map(|step| step.topic).collect();
    let expected = [
        "source",
        "destination",
        "mode",
        "route",
        "device",
        "neighbour",
        "fdb",
        "underlay",
        "path",
        "size",
        "program",
    ];
    assert_eq!(topics, expected);
}

#[test]
fn every_broken_part_breaks_the_way() {
    for (topic, story) in [
        (
            "route",
            after(|facts| facts.route = Some(Err("No route to host".to_owned()))),
        ),
        (
            "route",
            after(|facts| facts.route = Some(Ok(answer(UNDERLAY, "192.168.1.1")))),
        ),
        ("device", after_tunnel(|tunnel| tunnel.device = None)),
        ("neighbour", after_tunnel(|tunnel| tunnel.neighbour = None)),
        (
            "neighbour",
            after_tunnel(|tunnel| tunnel.neighbour = Some(Mac::default())),
        ),
        ("fdb", after_tunnel(|tunnel| tunnel.fdb = None)),
        (
            "fdb",
            after_tunnel(|tunnel| tunnel.fdb = Some(ip("192.168.1.99"))),
        ),
        (
            "underlay",
            after_tunnel(|tunnel| tunnel.outer = Err("unreachable".to_owned())),
        ),
        (
            "destination",
            after(|facts| facts.destination = Location::Unleased(peer(0).subnet)),
        ),
        (
            "source",
            after(|facts| facts.source = Location::Vacant(peer(0).subnet)),
        ),
        (
            "program",
            after(|facts| facts.tried = Ok(vec![tried(Program::FromPod, Reason::RewriteFailed)])),
        ),
    ] {
        assert_eq!(state(&story, topic), StepState::Fail, "{story:#?}");
        assert_eq!(
            (story.verdict.reaches, story.verdict.way),
            (Some(false), PacketWay::None),
            "{story:#?}"
        );
    }
}

/// A peer on our own link, without a tunnel on this node.
fn on_link(change: impl FnOnce(&mut Snapshot, &mut Tunnel)) -> Report {
    after(|facts| {
        let direct = peer(EntryState::DIRECT);
        let config = facts.config.as_mut().expect("a node");
        (config.v4.port, config.v4.tunnel_ifindex) = ([0; 2], 0);
        facts.destination = Location::Peer(direct);
        facts.route = Some(Ok(answer(UNDERLAY, "192.168.1.12")));
        facts.tried = Ok(Vec::new());
        let mut tunnel = facts.tunnel.take().expect("a tunnel");
        (tunnel.peer, tunnel.device, tunnel.neighbour, tunnel.fdb) = (direct, None, None, None);
        tunnel.outer = Ok(answer(UNDERLAY, "192.168.1.12"));
        change(facts, &mut tunnel);
        facts.tunnel = Some(tunnel);
    })
}

#[test]
fn a_plain_route_needs_its_next_hop_and_no_tunnel() {
    let story = on_link(|_, _| {});
    assert!(
        story.steps.iter().all(|step| step.state == StepState::Ok),
        "{story:#?}"
    );
    let topics: Vec<_> = story.steps.iter().map(|step| step.topic).collect();
    assert_eq!(
        topics,
        ["source", "destination", "mode", "route", "underlay"]
    );
    assert_eq!(
        (story.verdict.reaches, story.verdict.way),
        (Some(true), PacketWay::Direct)
    );
    let silent = on_link(|_, tunnel| {
        tunnel.next_hop = Some(Neighbour {
            mac: None,
            failed: true,
        });
    });
    let down = on_link(|_, tunnel| tunnel.external.as_mut().expect("a device").running = false);
    for story in [silent, down] {
        assert_eq!(state(&story, "underlay"), StepState::Fail, "{story:#?}");
        assert_eq!(
            (story.verdict.reaches, story.verdict.way),
            (Some(false), PacketWay::None),
            "{story:#?}"
        );
    }
}

/// A peer behind a device without Ethernet, or behind routes of others.
fn routed(by: u32, change: impl FnOnce(&mut Snapshot, &mut Tunnel)) -> Report {
    on_link(|facts, tunnel| {
        let config = facts.config.as_mut().expect("a node");
        config.v4.tunnel_ifindex = if by == TUNNEL { TUNNEL } else { 0 };
        tunnel.peer.entry = PeerEntry {
            oif: by,
            next_hop: Addr::NONE,
            ..tunnel.peer.entry
        };
        facts.destination = Location::Peer(tunnel.peer);
        facts.route = Some(Ok(answer(by, "192.168.1.1")));
        tunnel.device = (by == TUNNEL).then(|| Link {
            up: true,
            ..Link::ethernet(TUNNEL, "flannel-wg", 1420)
        });
        change(facts, tunnel);
    })
}

#[test]
fn a_peer_behind_a_device_without_ethernet_needs_the_device_and_the_route_into_it() {
    let story = routed(TUNNEL, |_, _| {});
    assert!(
        story.steps.iter().all(|step| step.state == StepState::Ok),
        "{story:#?}"
    );
    let topics: Vec<_> = story.steps.iter().map(|step| step.topic).collect();
    assert_eq!(topics, ["source", "destination", "mode", "route", "device"]);
    assert_eq!(
        (story.verdict.reaches, story.verdict.way),
        (Some(true), PacketWay::Routed)
    );
    let down = routed(TUNNEL, |_, tunnel| {
        tunnel.device.as_mut().expect("a device").up = false;
    });
    let elsewhere = routed(TUNNEL, |facts, _| {
        facts.route = Some(Ok(answer(UNDERLAY, "192.168.1.1")));
    });
    for (story, topic) in [(down, "device"), (elsewhere, "route")] {
        assert_eq!(state(&story, topic), StepState::Fail, "{story:#?}");
    }
}

#[test]
fn routes_of_others_may_lead_where_they_want() {
    for device in [UNDERLAY, TUNNEL] {
        let story = routed(UNDERLAY, |facts, _| {
            facts.route = Some(Ok(answer(device, "192.168.1.1")));
        });
        assert!(
            story.steps.iter().all(|step| step.state == StepState::Ok),
            "{story:#?}"
        );
        assert_eq!(
            (story.verdict.reaches, story.verdict.way),
            (Some(true), PacketWay::Routed)
        );
    }
}

/// A peer behind commands, with an answer of this address to echo requests.
fn behind_commands(is_default: bool, answer: Option<&str>) -> Report {
    routed(UNDERLAY, |facts, _| {
        facts.commands = Some(CommandsRoute { is_default });
        let echo = answer.map(|address| PeerEchoStatus {
            address: address.to_owned(),
            ..answering()
        });
        let peer = PeerStatus {
            way: "extension".to_owned(),
            echo,
            ..reported_peer()
        };
        facts.status = Some(Status {
            peers: vec![peer],
            ..Status::without_agent("running", encap())
        });
    })
}

#[test]
fn a_peer_behind_commands_is_not_reached_for_sure_by_the_default_route() {
    let (pods, node) = (Some("10.244.9.1"), Some("192.168.1.12"));
    for (is_default, answer, reaches, topics) in [
        (false, pods, Some(true), &["route", "underlay", "echo"][..]),
        (true, pods, Some(true), &["route", "echo"]),
        (false, node, None, &["route", "underlay", "echo"]),
        (true, node, None, &["route", "echo"]),
        (true, None, None, &["route"]),
        (false, None, Some(true), &["route", "underlay"]),
    ] {
        let story = behind_commands(is_default, answer);
        assert_eq!(story.verdict.reaches, reaches, "{story:#?}");
        let found: Vec<_> = story.steps.iter().map(|step| step.topic).skip(3).collect();
        assert_eq!(found, topics, "{story:#?}");
        let is_open = is_default && answer != pods;
        assert_eq!(
            state(&story, "route") == StepState::Unknown,
            is_open,
            "{story:#?}"
        );
    }
    let silent = routed(UNDERLAY, |facts, _| {
        facts.route = Some(Ok(RouteAnswer::nowhere(RouteType::Unreachable)));
    });
    assert_eq!(silent.verdict.reaches, Some(false), "{silent:#?}");
}

/// An on-link peer has no tunnel packets that the guard could refuse.
#[test]
fn the_guard_is_reported_where_there_is_a_tunnel() {
    let from_peer = |facts: &mut Snapshot| facts.source = facts.destination.clone();
    let has_guard_step = |story: &Report| story.steps.iter().any(|step| step.topic == "guard");
    assert!(
        has_guard_step(&after(from_peer)) && !has_guard_step(&on_link(|facts, _| from_peer(facts)))
    );
}

/// The packets that probe the path would be lost, and then the path would not stay validated.
#[test]
fn a_packet_that_is_taken_needs_the_kernels_way_too() {
    let taken = |facts: &mut Snapshot| {
        facts.tried = Ok(vec![tried(Program::ToTunnel, Reason::Encapsulated)]);
    };
    let story = after(taken);
    assert_eq!(
        (story.verdict.reaches, story.verdict.way),
        (Some(true), PacketWay::Encap)
    );
    let story = after(|facts| {
        taken(facts);
        facts.tunnel.as_mut().expect("a tunnel").fdb = None;
    });
    assert_eq!(
        (story.verdict.reaches, story.verdict.way),
        (Some(false), PacketWay::Encap)
    );
    let not_attached = Tried {
        attached: false,
        ..tried(Program::ToTunnel, Reason::Encapsulated)
    };
    assert_eq!(
        after(|facts| facts.tried = Ok(vec![not_attached]))
            .verdict
            .way,
        PacketWay::Kernel
    );
}

#[test]
fn what_packets_survive_is_a_warning() {
    for (topic, story) in [
        ("mode", after(|facts| facts.now_ns = NOW + 61_000_000_000)),
        (
            "mode",
            after(|facts| facts.node = Err("nothing is pinned".to_owned())),
        ),
        ("path", after_tunnel(|tunnel| tunnel.peer = peer(0))),
        (
            "size",
            after_tunnel(|tunnel| tunnel.external = Some(link(UNDERLAY, "eth0", 1400))),
        ),
        (
            "program",
            after(|facts| facts.tried = Ok(vec![tried(Program::ToTunnel, Reason::UnexpectedMac)])),
        ),
    ] {
        assert_eq!(state(&story, topic), StepState::Warn, "{story:#?}");
        assert_eq!(story.verdict.reaches, Some(true), "{story:#?}");
    }
}

/// The story with an agent that says this of the echo of the peer.
fn answering() -> PeerEchoStatus {
    PeerEchoStatus {
        address: "10.244.9.0".to_owned(),
        state: EchoState::Answering,
        round_trip_us: None,
        lost: 0,
        of: 32,
        last_reply: Some(990),
        error: None,
    }
}

fn reported_peer() -> PeerStatus {
    PeerStatus {
        subnet: "10.244.9.0/24".to_owned(),
        public_ip: "192.168.1.12".to_owned(),
        vtep_mac: PEER_MAC.to_string(),
        way: "tunnel".to_owned(),
        ..PeerStatus::default()
    }
}

fn encap() -> ModeStatus {
    ModeStatus {
        effective: "encap".to_owned(),
        wanted: "encap".to_owned(),
        ..ModeStatus::default()
    }
}

fn with_echo(state: EchoState, last_reply: Option<u64>) -> Report {
    after(|facts| {
        let echo = PeerEchoStatus {
            state,
            last_reply,
            ..answering()
        };
        let peer = PeerStatus {
            echo: Some(echo),
            ..reported_peer()
        };
        facts.status = Some(Status {
            peers: vec![peer],
            ..Status::without_agent("running", encap())
        });
    })
}

#[test]
fn a_peer_without_an_answer_is_not_reached_for_sure() {
    let verdict = |state, last_reply| with_echo(state, last_reply).verdict.reaches;
    assert_eq!(verdict(EchoState::Answering, Some(990)), Some(true));
    assert_eq!(verdict(EchoState::Unknown, None), Some(true));
    assert_eq!(verdict(EchoState::Never, None), None);
    assert_eq!(verdict(EchoState::Silent, Some(934)), Some(false));
    let story = with_echo(EchoState::Silent, Some(934));
    assert!(text(&story, "echo").contains("for 1m6s"), "{story:#?}");
}

#[test]
fn an_address_of_which_nothing_is_known_leaves_the_verdict_open() {
    let unknown = |change: fn(&mut Snapshot)| {
        after(|facts| {
            facts.destination = Location::Unknown;
            facts.node = Err("nothing is pinned".to_owned());
            facts.config = None;
            facts.tried = Ok(Vec::new());
            change(facts);
        })
    };
    assert_eq!(unknown(|_| ()).verdict.reaches, None);
    let lost = unknown(|facts| facts.tunnel.as_mut().expect("a tunnel").fdb = None);
    assert_eq!(
        (lost.verdict.reaches, state(&lost, "fdb")),
        (Some(false), StepState::Fail)
    );
    let lost = unknown(|facts| facts.tunnel.as_mut().expect("a tunnel").neighbour = None);
    assert_eq!(
        (lost.verdict.reaches, state(&lost, "neighbour")),
        (Some(false), StepState::Fail)
    );
    let lost = unknown(|facts| facts.route = Some(Err("no route".to_owned())));
    assert_eq!(
        (lost.verdict.reaches, state(&lost, "route")),
        (Some(false), StepState::Fail)
    );
}

#[test]
fn a_path_is_held_while_it_differs() {
    let seen = PathProbe {
        word: EntryState::new(EntryState::VALID | EntryState::PLAIN, 1),
        hold_ns: NOW + 1,
        ..PathProbe::default()
    };
    assert_eq!(
        state(
            &after_tunnel(|tunnel| tunnel.peer.entry.seen = seen),
            "path"
        ),
        StepState::Warn
    );
    let seen = PathProbe {
        until_ns: NOW + 1,
        hold_ns: 0,
        max_len: 1500,
        ..seen
    };
    assert_eq!(
        state(
            &after_tunnel(|tunnel| tunnel.peer.entry.seen = seen),
            "path"
        ),
        StepState::Ok
    );
}

/// A Service with these endpoints, of which the first is followed.
fn for_service(endpoints: &[&str], change: impl FnOnce(&mut Snapshot)) -> Report {
    after(|facts| {
        let endpoints: Vec<_> = endpoints
            .iter()
            .map(|end| end.parse().expect("an end"))
            .collect();
        let service = Service {
            rule: "a rule".to_owned(),
            name: Some("default/web".to_owned()),
            port: 80,
            endpoints,
        };
        facts.question.destination = ip("10.96.0.1");
        facts.onward = Onward {
            address: ip("10.244.9.2"),
            port: Some(8080),
            is_learned: false,
        };
        facts.service = Some(if service.endpoints.is_empty() {
            facts.onward = Onward {
                address: ip("10.96.0.1"),
                port: None,
                is_learned: false,
            };
            ServiceAnswer::Empty(service)
        } else {
            ServiceAnswer::Translated(service)
        });
        change(facts);
    })
}

fn text<'a>(story: &'a Report, topic: &str) -> &'a str {
    let step = story.steps.iter().find(|step| step.topic == topic);
    step.map_or_else(|| panic!("no {topic} in {story:#?}"), |step| &step.text)
}

#[test]
fn a_service_is_named_and_its_endpoint_followed() {
    let story = for_service(&["10.244.9.2:8080", "10.244.9.3:8080"], |_| {});
    assert_eq!(
        text(&story, "service"),
        "10.96.0.1:80 is the Service default/web (a rule), translated to 10.244.9.2:8080, \
         10.244.9.3:8080; the kernel \
         chooses one for each connection. The steps below follow 10.244.9.2:8080"
    );
    assert!(
        text(&story, "destination").starts_with("10.244.9.2 is in 10.244.9.0/24"),
        "{story:#?}"
    );
    assert!(
        text(&story, "route").starts_with("10.244.9.2 is routed"),
        "{story:#?}"
    );
    assert!(
        story
            .verdict
            .text
            .starts_with("it leaves for the node 192.168.1.12"),
        "{story:#?}"
    );
}

#[test]
fn a_service_without_endpoints_loses_the_packet() {
    let story = for_service(&[], |facts| {
        facts.destination = Location::Outside;
        facts.tunnel = None;
        facts.route = Some(Ok(answer(UNDERLAY, "192.168.1.1")));
    });
    assert_eq!(state(&story, "service"), StepState::Fail);
    assert!(
        story.verdict.reaches == Some(false) && text(&story, "service").contains("no endpoints"),
        "{story:#?}"
    );
}

#[test]
fn what_rules_do_not_say_is_named() {
    let unknown = for_service(&["10.244.9.2:8080"], |facts| {
        facts.service = Some(ServiceAnswer::Unknown("no tool".to_owned()));
        facts.onward = Onward {
            address: ip("10.96.0.1"),
            port: None,
            is_learned: false,
        };
    });
    assert_eq!(state(&unknown, "service"), StepState::Warn);
    assert!(text(&unknown, "service").contains("no tool. If so, ask about a pod behind it"));
    let no_proxy = for_service(&["10.244.9.2:8080"], |facts| {
        facts.service = Some(ServiceAnswer::NoProxy);
        facts.onward = Onward {
            address: ip("198.51.100.1"),
            port: None,
            is_learned: false,
        };
    });
    assert_eq!(
        state(&no_proxy, "service"),
        StepState::Ok,
        "most addresses outside are no Service"
    );
    assert!(text(&no_proxy, "service").contains("IPVS"), "{no_proxy:#?}");
    let ports = for_service(&["10.244.9.2:8080"], |facts| {
        facts.service = Some(ServiceAnswer::Ports(vec![
            "tcp 80".to_owned(),
            "tcp 443".to_owned(),
        ]));
    });
    assert!(
        text(&ports, "service").contains("at tcp 80, tcp 443"),
        "{ports:#?}"
    );
}

#[test]
fn masquerade_is_named_where_packets_leave() {
    let outside = |answer: MasqueradeAnswer| {
        let story = after(|facts| {
            facts.destination = Location::Outside;
            facts.masquerade = Some(answer);
        });
        (
            state(&story, "masquerade"),
            text(&story, "masquerade").to_owned(),
        )
    };
    let yes = outside(MasqueradeAnswer::Yes {
        rule: "a rule".to_owned(),
    });
    assert_eq!(
        yes,
        (
            StepState::Ok,
            "it leaves with the address of flannel.1 in place of 10.244.1.2 (a rule)".to_owned()
        )
    );
    assert!(
        outside(MasqueradeAnswer::No)
            .1
            .contains("answers need a route back")
    );
    assert_eq!(
        outside(MasqueradeAnswer::Unknown("why".to_owned())).0,
        StepState::Warn
    );
    assert!(
        after(|_| {})
            .steps
            .iter()
            .all(|step| step.topic != "masquerade")
    );
}

fn row(state: &'static str) -> FlowRow {
    let end = |text: &str| text.parse().expect("an end");
    FlowRow {
        protocol: "tcp",
        source: end("10.244.1.2:40000"),
        destination: end("10.244.9.2:80"),
        device: VETH,
        out_source: end("10.244.1.2:40000"),
        out_destination: end("10.244.9.2:80"),
        out_device: TUNNEL,
        way: flannel_flows::rows::FlowWay::Tunnel,
        packets: 7,
        bytes: 700,
        first_seen_ms: 9_000,
        last_seen_ms: 20,
        age_ms: Some(500),
        expires_in_ms: Some(1_500),
        mirror_expires_in_ms: None,
        needs_mirror: false,
        mtu: 1450,
        tos: 0,
        ttl: 64,
        flow_label: 0,
        state,
        why: None,
        generation: 1,
    }
}

/// Flows are read a moment before the programs are tried.
#[test]
fn a_flow_is_not_called_usable_where_the_program_leaves_its_packet() {
    let with = |reason: Reason| {
        let story = after(|facts| {
            facts.node.as_mut().expect("a node").mode = ModeWord::new(Mode::Fast, None, 1);
            facts.flows = [Some(row("usable")), None];
            facts.tried = Ok(vec![tried(Program::FromPod, reason)]);
        });
        text(&story, "flow").to_owned()
    };
    assert!(with(Reason::Replayed).contains("usable for another 1.5 s"));
    let left = with(Reason::Refreshing);
    assert!(
        left.contains("the program below leaves this packet to the kernel")
            && !left.contains("for another"),
        "{left}"
    );
}

/// A pod that is left alone, and maps that are stale, are not learned from.
#[test]
fn a_flow_may_be_learned_only_where_its_pod_takes_part() {
    let with = |flags: u16, age_ns: u64| {
        let story = after(|facts| {
            facts.node.as_mut().expect("a node").mode = ModeWord::new(Mode::Fast, None, 1);
            facts.now_ns += age_ns;
            if let Location::Pod(pod) = &mut facts.source {
                pod.entry = Some(PodEntry {
                    mac: Mac::default(),
                    flags,
                    mtu: 1450,
                    ..PodEntry::default()
                });
            }
        });
        text(&story, "flow").contains("may be learned from")
    };
    assert!(
        with(PodEntry::SENDS, 0)
            && !with(PodEntry::RECEIVES, 0)
            && !with(PodEntry::SENDS, 61_000_000_000)
    );
}

#[test]
fn rules_that_may_drop_the_packet_leave_the_verdict_open() {
    let with = |firewall: FirewallAnswer| after(|facts| facts.firewall = Some(firewall));
    let chain = || vec!["ip filter FORWARD".to_owned()];
    for rules in [
        FirewallAnswer {
            closed: chain(),
            ..FirewallAnswer::default()
        },
        FirewallAnswer {
            at_port: chain(),
            ..FirewallAnswer::default()
        },
    ] {
        let story = with(rules);
        assert_eq!(story.verdict.reaches, None, "{story:?}");
        assert!(story.verdict.text.contains("(firewall)"), "{story:?}");
    }
    assert_eq!(with(FirewallAnswer::default()).verdict.reaches, Some(true));
    let unread = with(FirewallAnswer {
        errors: chain(),
        ..FirewallAnswer::default()
    });
    assert_eq!(unread.verdict.reaches, Some(true));
}

fn drop_by_policy() -> TraceDrop {
    let rule = TracedRule {
        family: "ip".to_owned(),
        table: "filter".to_owned(),
        chain: "FORWARD".to_owned(),
        handle: None,
        verdict: "drop".to_owned(),
        text: None,
    };
    TraceDrop {
        packets: 1,
        direction: PacketDirection::Original,
        rule,
    }
}

#[test]
fn the_packets_of_a_trace_decide_about_rules() {
    let closed = vec!["ip filter FORWARD".to_owned()];
    let traced = |trace: TraceReport| {
        after(|facts| {
            facts.firewall = Some(FirewallAnswer {
                closed: closed.clone(),
                ..FirewallAnswer::default()
            });
            facts.trace = Some(trace);
        })
    };
    let all = TraceReport {
        seen: 3,
        traced: 3,
        passed: 3,
        ..TraceReport::default()
    };
    let passed = traced(all.clone());
    assert_eq!(
        (passed.verdict.reaches, state(&passed, "firewall")),
        (Some(true), StepState::Ok),
        "{passed:?}"
    );
    assert!(
        passed
            .verdict
            .text
            .starts_with("passed: no rule dropped a packet"),
        "{passed:?}"
    );
    let unseen = traced(TraceReport::default());
    assert_eq!(unseen.verdict.reaches, None);
    assert!(
        unseen
            .verdict
            .text
            .starts_with("no packet of this flow was seen"),
        "{unseen:?}"
    );
    let dropped = traced(TraceReport {
        dropped: 1,
        passed: 2,
        drops: vec![drop_by_policy()],
        ..all
    });
    assert_eq!(
        (dropped.verdict.reaches, state(&dropped, "trace")),
        (Some(false), StepState::Fail)
    );
    assert!(
        dropped
            .verdict
            .text
            .starts_with("dropped by: table ip filter, chain FORWARD: policy drop"),
        "{dropped:?}"
    );
}

#[test]
fn what_is_behind_a_route_is_a_step() {
    use flannel_backend_api::{Carrier, CarrierState};
    let seen = |state| {
        let carrier = Carrier {
            part: "wireguard",
            state,
            text: "the finding".to_owned(),
        };
        let story = after(|facts| facts.carrier = Some(carrier));
        let step = story.steps.iter().find(|step| step.topic == "wireguard");
        let text = step.expect("a step").text.clone();
        (story.verdict.reaches, text.ends_with("the finding"))
    };
    assert_eq!(seen(CarrierState::Carries), (Some(true), true));
    assert_eq!(seen(CarrierState::Doubtful), (Some(true), true));
    assert_eq!(seen(CarrierState::Unknown), (None, true));
    assert_eq!(seen(CarrierState::Lost), (Some(false), true));
    // It ends with what a running agent does.
    assert_eq!(seen(CarrierState::Repairable), (Some(false), false));
}

#[test]
fn a_missing_masquerade_is_open_only_where_no_agent_keeps_it() {
    let reaches = |masquerades: bool, answer: MasqueradeAnswer| {
        let story =
            after(|facts| (facts.masquerade, facts.masquerades) = (Some(answer), masquerades));
        story.verdict.reaches
    };
    assert_eq!(reaches(true, MasqueradeAnswer::No), None);
    assert_eq!(reaches(false, MasqueradeAnswer::No), Some(true));
    assert_eq!(
        reaches(
            true,
            MasqueradeAnswer::Yes {
                rule: "POSTROUTING".to_owned()
            }
        ),
        Some(true)
    );
}
