//! Reads the state of the node that explains what happens to a packet.

use std::{collections::BTreeMap, net::IpAddr, path::Path};

use flannel_backend_api::{Carrier, underlay::by_devices};
use flannel_backends::carrier;
use flannel_common::{
    abi::{guard::GuardWord, node::FamilyConfig, peer::PeerEntry},
    packet::addr::{Addr, Mac},
};
use flannel_datapath::{
    DatapathError, PinRoot,
    kernel::clock,
    maps::{ConfigMap, ModeMap},
    maps::{
        ecmp_paths::PinnedEcmpPaths,
        guard::GuardMap,
        peers::{PinnedPeer, family_config},
    },
};
use flannel_firewall::Ruleset;
use flannel_flows::rows::{self, FlowRow};
use flannel_host::{clock::unix_now, error_chain::chain, family::Family, sysctl};
use flannel_inspect::reported_cluster::{ReportedCluster, subnets};
use flannel_netlink::{
    FdbKey, Link, NeighbourKey, Netlink, NetlinkError, RouteAnswer, RouteQuery, RouteType,
};
use flannel_status::Status;
use flannel_subnet_env::SubnetFile;
use ipnet::IpNet;

use super::{
    agent_places::AgentPlaces,
    commands,
    location::{Context, KnownCluster, Location, enters_by},
    nat::{self, ServiceAnswer},
    question::Question,
    snapshot::{FirewallAnswer, Onward, PinnedNode, Snapshot, Tunnel},
    trace::TraceReport,
    trial::{self, Preparation},
};

/// The age up to which a flow shows where the kernel sends its packets, in milliseconds.
const RECENT_MS: i64 = 60_000;

/// Reads.
pub(super) async fn read(
    question: Question,
    places: AgentPlaces<'_>,
    status: Option<Status>,
    trace: Option<TraceReport>,
) -> Result<Snapshot, NetlinkError> {
    let AgentPlaces { pins, state_dir } = places;
    let family = Family::of(question.destination);
    let preparation = Preparation::begin(pins, family);
    let (netlink, _events) = Netlink::connect()?;
    let (node, around) = look_around(&netlink, pins, status.as_ref()).await?;
    let config = own_config(&around, family);
    let source = around.place(question.source).await?;
    let destination = around.place(question.destination).await?;
    preparation.load(&source, &destination);
    // What a peer's pod sends to a Service was translated on its node.
    let may_be_service =
        matches!(destination, Location::Outside) && !matches!(source, Location::Peer(_));
    let service = if may_be_service {
        Some(nat::service(&question).await)
    } else {
        None
    };
    // After the rules, which take their time: flows are refreshed every two seconds.
    let (rows, generation) = (rows::read(pins).unwrap_or_default(), generation(&node));
    let flows = known(&question, &source, config.as_ref(), &rows, generation);
    let onward = onward(&question, &flows, service.as_ref());
    let destination = if onward.port.is_some() {
        around.place(onward.address).await?
    } else {
        destination
    };
    let tunnel = read_peer_tunnel(&around, [&destination, &source], config).await?;
    let mut facts = Snapshot {
        question,
        config: around.cluster.config().copied(),
        node,
        route: None,
        commands: None,
        route_device: None,
        carrier: None,
        firewall: None,
        tunnel,
        flows,
        onward,
        service,
        masquerade: None,
        masquerades: masquerades(state_dir),
        tried: Ok(Vec::new()),
        trace,
        status,
        now_ns: clock::now_ns(),
        now_unix: unix_now(),
        source,
        destination,
    };
    read_way(&mut facts, &around, state_dir).await?;
    if may_be_service && leaves_the_cluster(&facts) {
        let device = facts.route_device.as_deref();
        let masquerade = nat::masquerade(question.source, facts.onward.address, device);
        facts.masquerade = Some(masquerade.await);
    }
    if facts.node.is_ok() {
        facts.tried = trial::run(&facts, &around, preparation).map_err(|error| chain(&error));
    }
    Ok(facts)
}

/// Reads the data of this node, and the places around the packet.
async fn look_around<'a>(
    netlink: &'a Netlink,
    pins: &'a PinRoot,
    status: Option<&Status>,
) -> Result<(Result<PinnedNode, String>, Context<'a>), NetlinkError> {
    let links: BTreeMap<u32, Link> = netlink
        .links()
        .await?
        .into_iter()
        .map(|link| (link.index, link))
        .collect();
    let node = read_node(pins).map_err(|error| chain(&error));
    let reported = || status.and_then(|status| ReportedCluster::of(status, &links));
    let cluster = match &node {
        Ok(node) => KnownCluster::Pinned(node.config),
        Err(_) => reported().map_or(KnownCluster::Unknown, KnownCluster::Reported),
    };
    let around = Context {
        netlink,
        pins,
        cluster,
        links,
        addresses: netlink.addresses().await?,
        leased: status
            .and_then(|status| status.lease.as_ref())
            .map(subnets)
            .unwrap_or_default(),
    };
    Ok((node, around))
}

fn own_config(around: &Context<'_>, family: Family) -> Option<FamilyConfig> {
    let config = around.cluster.config();
    config.map(|config| *family_config(config, family))
}

fn generation(node: &Result<PinnedNode, String>) -> u32 {
    node.as_ref()
        .map(|node| node.mode.generation())
        .unwrap_or_default()
}

/// Reads the tunnel to the peer at one of the ends.
async fn read_peer_tunnel(
    around: &Context<'_>,
    ends: [&Location; 2],
    config: Option<FamilyConfig>,
) -> Result<Option<Tunnel>, NetlinkError> {
    Ok(match (ends, config) {
        ([Location::Peer(peer), _] | [_, Location::Peer(peer)], Some(config)) => {
            Some(read_tunnel(around, *peer, &config).await?)
        }
        _ => None,
    })
}

/// Reads the route, and what the packet meets on it.
async fn read_way(
    facts: &mut Snapshot,
    around: &Context<'_>,
    state_dir: &Path,
) -> Result<(), NetlinkError> {
    facts.route = read_route(around, facts).await;
    facts.commands = commands::read(around, facts, state_dir).await;
    if matches!(facts.destination, Location::Unknown) {
        facts.tunnel = read_unknown_tunnel(around, facts).await?;
    }
    facts.firewall = read_firewall(facts).await;
    facts.carrier = read_carrier(around, facts, state_dir).await?;
    facts.route_device = facts
        .route
        .as_ref()
        .and_then(|route| Some(around.name(route.as_ref().ok()?.oif?)));
    Ok(())
}

fn read_node(pins: &PinRoot) -> Result<PinnedNode, DatapathError> {
    let guard = match GuardMap::open(pins) {
        Err(error) if error.is_absent() => GuardWord::default(),
        other => other?.get()?,
    };
    Ok(PinnedNode {
        mode: ModeMap::open(pins)?.get()?,
        config: ConfigMap::open(pins)?.get()?,
        guard: guard.in_force(),
    })
}

async fn read_tunnel(
    around: &Context<'_>,
    peer: PinnedPeer,
    config: &FamilyConfig,
) -> Result<Tunnel, NetlinkError> {
    let (netlink, link) = (around.netlink, |index: u32| {
        around.links.get(&index).cloned()
    });
    let index = config.tunnel_ifindex;
    let (neighbour, fdb) = if config.has_tunnel() {
        read_entries(netlink, &peer, index).await?
    } else {
        (None, None)
    };
    let vtep = IpAddr::from(peer.entry.vtep);
    let dport = config.has_tunnel().then(|| u16::from_be_bytes(config.port));
    let query = RouteQuery {
        dst: vtep,
        src: Some(config.vtep.into()),
        dport,
    };
    let outer = netlink
        .route_get(query)
        .await
        .map_err(|error| chain(&error));
    let next_hop = match &outer {
        Ok(RouteAnswer {
            oif: Some(oif),
            gateway,
            ..
        }) => {
            netlink
                .neighbour(NeighbourKey {
                    ifindex: *oif,
                    addr: gateway.unwrap_or(vtep),
                })
                .await?
        }
        _ => None,
    };
    let outlets = outer.as_ref().map(by_devices).unwrap_or_default();
    let ecmp_paths = PinnedEcmpPaths::read(around.pins).unwrap_or_default();
    Ok(Tunnel {
        peer,
        outlets: outlets.into_iter().filter_map(link).collect(),
        ecmp_paths: ecmp_paths
            .of(Family::of(vtep), peer.index)
            .map(|(index, ecmp_path)| (index, *ecmp_path))
            .collect(),
        device: link(index),
        neighbour,
        fdb,
        outer,
        external: link(config.underlay_ifindex),
        next_hop,
    })
}

/// Returns the kernel's way to an address of which only the kernel knows, if its route leads into a
/// vxlan device.
async fn read_unknown_tunnel(
    around: &Context<'_>,
    facts: &Snapshot,
) -> Result<Option<Tunnel>, NetlinkError> {
    let Some(Ok(RouteAnswer {
        oif: Some(oif),
        gateway: Some(gateway),
        ..
    })) = &facts.route
    else {
        return Ok(None);
    };
    let Some(vxlan) = around.links.get(oif).and_then(|link| link.vxlan.as_ref()) else {
        return Ok(None);
    };
    let config = FamilyConfig {
        vtep: vxlan.local.map_or(Addr::NONE, Addr::from),
        port: vxlan.port.to_be_bytes(),
        tunnel_ifindex: *oif,
        underlay_ifindex: vxlan.lower.unwrap_or(0),
        ..FamilyConfig::default()
    };
    let mut peer = PinnedPeer {
        index: 0,
        subnet: IpNet::from(*gateway),
        entry: PeerEntry::default(),
    };
    let (mac, vtep) = read_entries(around.netlink, &peer, *oif).await?;
    (peer.entry.mac, peer.entry.vtep) =
        (mac.unwrap_or_default(), vtep.map_or(Addr::NONE, Addr::from));
    read_tunnel(around, peer, &config).await.map(Some)
}

/// Reads the peer's entries on the tunnel device: the Ethernet address behind its gateway, and the
/// VTEP to which frames for that are sent.
async fn read_entries(
    netlink: &Netlink,
    peer: &PinnedPeer,
    tunnel: u32,
) -> Result<(Option<Mac>, Option<IpAddr>), NetlinkError> {
    let gateway = NeighbourKey {
        ifindex: tunnel,
        addr: peer.subnet.addr(),
    };
    let mac = netlink
        .neighbour(gateway)
        .await?
        .and_then(|neighbour| neighbour.mac);
    let fdb = netlink.fdb(tunnel).await.unwrap_or_default();
    let fdb = fdb.into_iter().find(|(key, _)| {
        Some(*key)
            == mac.map(|mac| FdbKey {
                ifindex: tunnel,
                mac,
            })
    });
    Ok((mac, fdb.map(|(_, vtep)| vtep)))
}

/// The end to which the packet goes: that to which the kernel lately sent packets of the flow, else
/// the first endpoint of its Service.
fn onward(
    question: &Question,
    flows: &[Option<FlowRow>; 2],
    service: Option<&ServiceAnswer>,
) -> Onward {
    let is_recent = |flow: &&FlowRow| flow.age_ms.is_some_and(|age| age < RECENT_MS);
    let learned = flows[0]
        .as_ref()
        .filter(is_recent)
        .map(|flow| flow.out_destination);
    let first = match service {
        Some(ServiceAnswer::Translated(service)) => service.endpoints.first().copied(),
        _ => None,
    };
    match (
        learned.filter(|out| out.ip() != question.destination),
        first,
    ) {
        (Some(end), _) => Onward {
            address: end.ip(),
            port: Some(end.port()),
            is_learned: true,
        },
        (None, Some(end)) => Onward {
            address: end.ip(),
            port: Some(end.port()),
            is_learned: false,
        },
        (None, None) => Onward {
            address: question.destination,
            port: None,
            is_learned: false,
        },
    }
}

/// True for packets of a pod that leave pod network and node.
const fn leaves_the_cluster(facts: &Snapshot) -> bool {
    matches!(
        (&facts.source, &facts.destination),
        (Location::Pod(_), Location::Outside)
    )
}

/// Returns the kernel's route for the packet from this node; `None` if no route applies to it.
async fn read_route(around: &Context<'_>, facts: &Snapshot) -> Option<Result<RouteAnswer, String>> {
    let (source, destination) = (facts.question.source, facts.onward.address);
    let forwarded = async |iif| {
        let answer = around
            .netlink
            .route_forwarded(destination, source, iif)
            .await;
        // For an IPv4 packet the answer itself reports that.
        let refuses = || destination.is_ipv6() && !sysctl::forwards_ipv6_from(&around.name(iif));
        answer.map(|route| match route.kind {
            RouteType::Unicast if refuses() => RouteAnswer::nowhere(RouteType::Unreachable),
            _ => route,
        })
    };
    let answer = match (&facts.source, &facts.destination) {
        (Location::Pod(from), Location::Pod(to))
            if from.routed_by() == to.routed_by() && !facts.is_translated() =>
        {
            return None;
        }
        (Location::Vacant(_), _) | (_, Location::Vacant(_)) => return None,
        (Location::Pod(pod), _) => forwarded(pod.routed_by()).await,
        (Location::Peer(peer), Location::Pod(_) | Location::Node(_)) => {
            forwarded(enters_by(peer, facts.config()?)).await
        }
        (Location::Peer(_), _) => return None,
        _ => around.netlink.route_from_here(destination).await,
    };
    Some(answer.map_err(|error| chain(&error)))
}

/// Reads `subnet.env` in its usual place, the state directory.
fn masquerades(state_dir: &Path) -> bool {
    let text = std::fs::read_to_string(state_dir.join("subnet.env")).unwrap_or_default();
    SubnetFile::parse(&text).is_ok_and(|file| file.ip_masq)
}

/// Reads the rules that may drop a packet between a pod here and another node.
async fn read_firewall(facts: &Snapshot) -> Option<FirewallAnswer> {
    let (source, destination) = (&facts.source, &facts.destination);
    let is_here = |place: &Location| matches!(place, Location::Pod(_));
    let is_elsewhere = |place: &Location| matches!(place, Location::Peer(_) | Location::Unknown);
    if !(is_here(source) && is_elsewhere(destination)
        || is_elsewhere(source) && is_here(destination))
    {
        return None;
    }
    let port = facts
        .config()
        .filter(|config| config.has_tunnel())
        .map(|config| u16::from_be_bytes(config.port));
    let (rules, errors) = Ruleset::read(port).await;
    Some(FirewallAnswer {
        closed: rules.closed_forward(),
        at_port: rules.dropping_at_port(),
        errors,
    })
}

/// Reads the state behind the route of a packet to another node.
async fn read_carrier(
    around: &Context<'_>,
    facts: &Snapshot,
    state_dir: &Path,
) -> Result<Option<Carrier>, NetlinkError> {
    let (Location::Peer(_) | Location::Unknown, Some(Ok(route))) =
        (&facts.destination, &facts.route)
    else {
        return Ok(None);
    };
    let device = route.oif.and_then(|index| around.links.get(&index));
    carrier(
        around.netlink,
        device,
        [facts.question.source, facts.onward.address],
        state_dir,
    )
    .await
}

/// The busiest flow that fits the question, and its way back. Where the question leaves ports open,
/// closed flows and those of an earlier generation do not count.
fn known(
    question: &Question,
    place: &Location,
    config: Option<&FamilyConfig>,
    rows: &[FlowRow],
    generation: u32,
) -> [Option<FlowRow>; 2] {
    let Question {
        source,
        destination,
        transport,
        sport,
        dport,
    } = *question;
    let entry = match place {
        Location::Pod(pod) => pod.veth.index,
        Location::Peer(peer) => config.map_or(0, |config| enters_by(peer, config)),
        _ => return [None, None],
    };
    let is_asked = sport.is_some() && dport.is_some();
    let is_there = |row: &&FlowRow| {
        row.device == entry
            && (is_asked || row.generation == generation && row.expires_in_ms.is_some())
            && row.protocol == transport.name()
            && (row.source.ip(), row.destination.ip()) == (source, destination)
            && sport.is_none_or(|port| row.source.port() == port)
            && dport.is_none_or(|port| row.destination.port() == port)
    };
    let there = rows.iter().find(is_there).cloned();
    let back = there.as_ref().and_then(|there| {
        let is_back = |row: &&FlowRow| {
            row.device == there.out_device
                && row.protocol == there.protocol
                && (row.source, row.destination) == (there.out_destination, there.out_source)
        };
        rows.iter().find(is_back).cloned()
    });
    [there, back]
}
