//! The devices by which outer packets to the peers of one family leave: programs belong there in
//! addition to the external interface. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use flannel_backend_api::{PeerWay, Way, underlay::Uplink};

/// The sets of devices by which packets leave, with the number of peers of each.
#[derive(Debug, Default)]
pub(super) struct UplinkSet {
    peers: BTreeMap<Vec<(u32, String)>, usize>,
    /// Those of the last peer. In most clusters they are the same for all.
    last: Arc<[Uplink]>,
}

impl UplinkSet {
    /// Gives paths that leave by the same devices one copy of them.
    pub(super) fn share(&mut self, peers: &mut [PeerWay]) {
        for PeerWay { way, .. } in peers {
            let Way::Tunnel(Ok(path)) = way else { continue };
            if path.uplinks == self.last {
                path.uplinks = Arc::clone(&self.last);
            } else {
                self.last = Arc::clone(&path.uplinks);
            }
        }
    }

    /// Some peers were reached so before and are reached so now.
    pub(super) fn change(&mut self, before: &[PeerWay], after: &[PeerWay]) {
        for devices in after.iter().filter_map(devices) {
            *self.peers.entry(devices).or_default() += 1;
        }
        for devices in before.iter().filter_map(devices) {
            if let Some(peers) = self.peers.get_mut(&devices) {
                *peers -= 1;
            }
        }
        self.peers.retain(|_, peers| *peers > 0);
    }

    /// The devices: index and name, each once.
    pub(super) fn devices(&self) -> impl Iterator<Item = (u32, &str)> {
        let all: BTreeSet<_> = self
            .peers
            .keys()
            .flatten()
            .map(|(index, name)| (*index, name.as_str()))
            .collect();
        all.into_iter()
    }

    /// A device by which packets leave to a peer that no packets leave to by `external`.
    pub(super) fn way_past(&self, external: u32) -> Option<String> {
        let mut past = self
            .peers
            .keys()
            .filter(|devices| devices.iter().all(|(index, _)| *index != external));
        past.find_map(|devices| Some(devices.first()?.1.clone()))
    }
}

/// The devices by which packets leave to a peer with a plain path.
fn devices(peer: &PeerWay) -> Option<Vec<(u32, String)>> {
    let Way::Tunnel(Ok(path)) = &peer.way else {
        return None;
    };
    Some(
        path.uplinks
            .iter()
            .map(|uplink| (uplink.index, uplink.name.clone()))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use flannel_backend_api::underlay::{NotPlain, Path, Uplink};
    use flannel_store::Peer;

    fn by(names: &[&str]) -> PeerWay {
        let uplink = |(index, name): (u32, &&str)| Uplink {
            index,
            name: (*name).to_owned(),
            mtu: 1500,
        };
        let peer = Peer {
            subnet: "10.244.9.0/24".parse().expect("a prefix"),
            public_ip: "192.168.1.9".parse().expect("an address"),
            end: None,
            key: "10.244.9.0-24".into(),
        };
        let way = match names {
            [] => Err(NotPlain::Unknown),
            names => Ok(Path {
                uplinks: (2..).zip(names).map(uplink).collect(),
                next_hop: None,
            }),
        };
        PeerWay {
            peer,
            way: Way::Tunnel(way),
        }
    }

    #[test]
    fn peers_behind_the_same_devices_share_them() {
        let mut peers = [by(&["eth0"]), by(&["eth0"]), by(&[]), by(&["eth1"])];
        let before = peers.clone();
        UplinkSet::default().share(&mut peers);
        assert_eq!(peers, before);
        let uplinks = |peer: &PeerWay| match &peer.way {
            Way::Tunnel(Ok(path)) => Arc::as_ptr(&path.uplinks),
            _ => panic!("no path"),
        };
        assert_eq!(uplinks(&peers[0]), uplinks(&peers[1]));
        assert_ne!(uplinks(&peers[0]), uplinks(&peers[3]));
    }

    #[test]
    fn a_device_is_needed_until_the_last_peer_left_it() {
        let mut outlets = UplinkSet::default();
        let named = |outlets: &UplinkSet| {
            outlets
                .devices()
                .map(|(_, name)| name.to_owned())
                .collect::<Vec<_>>()
        };
        outlets.change(&[], &[by(&["eth0", "eth1"]), by(&["eth0"]), by(&[])]);
        assert_eq!(named(&outlets), ["eth0", "eth1"]);
        outlets.change(&[by(&["eth0", "eth1"])], &[by(&["eth0"])]);
        assert_eq!(named(&outlets), ["eth0"]);
        outlets.change(&[by(&["eth0"])], &[]);
        assert_eq!(named(&outlets), ["eth0"]);
        outlets.change(&[by(&["eth0"])], &[by(&[])]);
        assert!(named(&outlets).is_empty());
    }

    #[test]
    fn a_peer_is_past_a_device_only_if_none_of_its_packets_leave_by_it() {
        let mut outlets = UplinkSet::default();
        outlets.change(&[], &[by(&["eth0", "eth1"]), by(&["eth0"]), by(&[])]);
        assert_eq!(outlets.way_past(2), None);
        assert_eq!(outlets.way_past(3).as_deref(), Some("eth0"));
    }
}
