//! The vxlan backend: per peer a neighbour, an FDB entry, a peer map entry and a route into the
//! tunnel device; or, with DirectRouting and a peer on our own segment, only a plain route.
//!
//! Each family has its own tunnel: IPv4 pods over IPv4, IPv6 pods over IPv6, with one VNI and one
//! port.
//!
//! The kernel objects equal stock flannel's in destination, gateway, device and flags. Tunnel
//! routes carry stock's protocol too. Direct routes carry protocol 191, because nothing else
//! distinguishes them from an administrator's.

mod device;
#[cfg(test)]
mod tests;

use flannel_backend_api::{
    Backend, Desired, Node, OwnEnd, PeerValue, PeerWay, ProgramSet, TunnelDevice, TunnelUnderlay,
    Way, device_key, direct_entry, direct_route, network_config,
    underlay::{NotPlain, Path, Underlay},
};
use flannel_common::{
    abi::{ecmp::EcmpPathKey, entry_state::EntryState, node, peer::VtepEntry},
    packet::addr::Addr,
    packet::{OVERHEAD_V4, OVERHEAD_V6},
};
use flannel_datapath::maps::ecmp_paths::ethertype;
use flannel_host::family::Family;
use flannel_netlink::{AddressKey, FdbKey, NeighbourKey, Route, RouteKey, VxlanSpec, protocol};
use flannel_store::{Peer, RawJson, Vtep, VxlanData, config::VxlanConfig};

use self::device::VxlanDevice;

/// The bytes that encapsulation takes from the MTU, over IPv4 and over IPv6: an outer IP header,
/// UDP, VXLAN, and the inner Ethernet header.
const OVERHEAD: (u32, u32) = (50, 70);
const _: () = assert!(OVERHEAD.0 as usize == OVERHEAD_V4 && OVERHEAD.1 as usize == OVERHEAD_V6);

/// The backend, with the settings of the network configuration.
#[derive(Clone, Copy, Debug)]
pub struct Vxlan(pub VxlanConfig);

/// The tunnel device's name.
pub fn device_name(family: Family, vni: u32) -> String {
    match family {
        Family::V4 => format!("flannel.{vni}"),
        Family::V6 => format!("flannel-v6.{vni}"),
    }
}

impl Vxlan {
    fn spec(&self, lower: &TunnelUnderlay) -> VxlanSpec {
        let family = Family::of(lower.source);
        VxlanSpec {
            name: device_name(family, self.0.vni),
            vni: self.0.vni,
            port: self.0.port,
            mtu: self.mtu(family, lower.mtu),
            mac: lower.mac,
            lower: lower.external,
            local: lower.source,
            learning: self.0.learning,
            gbp: self.0.gbp,
            udp_zero_csum6_rx: family == Family::V6,
        }
    }
}

impl Backend for Vxlan {
    fn mtu(&self, family: Family, external_mtu: u32) -> u32 {
        let overhead = match family {
            Family::V4 => OVERHEAD.0,
            Family::V6 => OVERHEAD.1,
        };
        self.0
            .mtu
            .map_or(external_mtu, u32::from)
            .saturating_sub(overhead)
    }

    fn port(&self) -> Option<u16> {
        Some(self.0.port)
    }

    fn device(&self, lower: &TunnelUnderlay) -> Option<Box<dyn TunnelDevice>> {
        Some(Box::new(VxlanDevice(self.spec(lower))))
    }

    fn published(&self, _family: Family, end: Option<OwnEnd>) -> Option<RawJson> {
        let Some(OwnEnd::Vtep(Vtep {
            mac,
            zero_checksum_v6,
            other_source,
        })) = end
        else {
            return None;
        };
        Some(
            VxlanData {
                vni: Some(self.0.vni),
                vtep_mac: mac,
                zero_checksum_v6,
                other_source,
            }
            .to_json(),
        )
    }

    fn way(&self, node: &Node, underlay: &Underlay, peer: &Peer) -> Way {
        if let Some(device) = underlay
            .neighbour_device(peer.public_ip)
            .filter(|_| self.0.direct_routing)
        {
            return Way::Direct(device);
        }
        Way::Tunnel(
            underlay
                .path(peer.public_ip)
                .and_then(|path| match peer.vtep() {
                    _ if !node.network.has_peer_map() => Err(NotPlain::NoPeerMap {
                        subnets: node.network.subnet_count(),
                    }),
                    // The programs cannot compute the checksum of what the kernel will cut into
                    // segments.
                    Some(vtep) if peer.public_ip.is_ipv6() && !vtep.zero_checksum_v6 => {
                        Err(NotPlain::WantsChecksum)
                    }
                    _ => Ok(path),
                }),
        )
    }

    fn desired(&self, node: &Node, peers: &[PeerWay]) -> Desired {
        let mut desired = Desired::default();
        let Some((tunnel, _)) = node.tunnel else {
            return desired;
        };
        let (addr, prefix_len) = (node.subnet.network(), node.network.family().bits());
        desired.addresses.insert(AddressKey {
            ifindex: tunnel,
            addr,
            prefix_len,
        });
        for PeerWay { peer, way } in peers {
            add_kernel_path(&mut desired, tunnel, peer, way);
            add_map_entries(&mut desired, node, peer, way);
        }
        desired
    }

    fn node_config(&self, node: &Node) -> Option<node::FamilyConfig> {
        let (tunnel_ifindex, vtep_mac) = node.tunnel?;
        Some(node::FamilyConfig {
            vtep_mac,
            port: self.0.port.to_be_bytes(),
            vni: self.0.vni,
            tunnel_ifindex,
            source_port_min: node.port_range.0,
            source_port_max: node.port_range.1,
            ..network_config(node)?
        })
    }

    fn programs(&self) -> Result<ProgramSet, &'static str> {
        if self.0.gbp {
            Err("Backend.GBP is on, and the programs do not write group policy ids")
        } else {
            Ok(ProgramSet::Tunnel(self.0.vni))
        }
    }
}

fn add_kernel_path(desired: &mut Desired, tunnel: u32, peer: &Peer, way: &Way) {
    if let Way::Direct(device) = way {
        desired.routes.extend([direct_route(peer, *device)]);
        return;
    }
    let Some(Vtep { mac, .. }) = peer.vtep() else {
        return;
    };
    let gateway = peer.subnet.network();
    desired.neighbours.insert(
        NeighbourKey {
            ifindex: tunnel,
            addr: gateway,
        },
        mac,
    );
    desired.fdb.insert(
        FdbKey {
            ifindex: tunnel,
            mac,
        },
        peer.public_ip,
    );
    desired.routes.insert(
        RouteKey::main(peer.subnet),
        Route::onlink(gateway, tunnel, protocol::BOOT),
    );
}

/// Adds the map entries of a peer. A lease of another size than the network's subnets has no
/// number; only the kernel path serves it.
fn add_map_entries(desired: &mut Desired, node: &Node, peer: &Peer, way: &Way) {
    let Some(Vtep {
        mac, other_source, ..
    }) = peer.vtep().filter(|_| node.network.has_peer_map())
    else {
        return;
    };
    let vtep = Addr::from(peer.public_ip);
    let index = node.network.index_of(peer.subnet);
    add_sender(desired, vtep, index);
    if other_source {
        desired
            .elsewhere
            .insert(device_key(mac, node.network.family()));
    }
    let Some(index) = index else { return };
    let unled = PeerValue {
        vtep,
        mac,
        ..PeerValue::default()
    };
    let value = match way {
        Way::Direct(device) => direct_entry(vtep, mac, *device),
        Way::Tunnel(Ok(path)) => by_path(path, unled),
        Way::Tunnel(Err(_)) | Way::Carried(_) | Way::NotOnLink => unled,
    };
    if value.flags & EntryState::ECMP != 0
        && let Way::Tunnel(Ok(path)) = way
    {
        let key = |device| EcmpPathKey::new(ethertype(node.network.family()), index, device);
        desired.ecmp_paths.extend(
            path.uplinks
                .iter()
                .map(|ecmp_path| (key(ecmp_path.index), ecmp_path.mtu)),
        );
    }
    desired.peers.insert(index, value);
}

/// By one device to one next hop, or as the kernel's FIB says for each packet.
fn by_path(path: &Path, unled: PeerValue) -> PeerValue {
    let value = PeerValue {
        flags: EntryState::PLAIN,
        mtu: path.mtu(),
        ..unled
    };
    match (path.next_hop, &*path.uplinks) {
        (Some(next_hop), [ecmp_path]) => PeerValue {
            next_hop: next_hop.into(),
            oif: ecmp_path.index,
            ..value
        },
        _ => PeerValue {
            flags: EntryState::PLAIN | EntryState::ECMP,
            ..value
        },
    }
}

/// Whatever leads to a peer, and also if nothing does, its packets are accepted. Of several subnets
/// of one node the highest number counts, so one without a number does.
fn add_sender(desired: &mut Desired, vtep: Addr, index: Option<u32>) {
    let sender = desired.vteps.entry(vtep).or_default();
    sender.index = sender.index.max(index.unwrap_or(VtepEntry::UNNUMBERED));
}
