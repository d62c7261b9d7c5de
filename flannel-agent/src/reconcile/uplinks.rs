//! The devices by which outer packets to the peers of one family leave: programs belong there in
//! addition to the external interface. Pure.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    backend::{PeerWay, Way},
    underlay::Uplink,
};

/// Each device, by index and name, with the number of peers that need it.
#[derive(Debug, Default)]
pub(super) struct UplinkSet {
    peers: BTreeMap<(u32, String), usize>,
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
        for device in after.iter().flat_map(devices) {
            *self.peers.entry(device).or_default() += 1;
        }
        for device in before.iter().flat_map(devices) {
            if let Some(peers) = self.peers.get_mut(&device) {
                *peers -= 1;
            }
        }
        self.peers.retain(|_, peers| *peers > 0);
    }

    /// The devices: index and name.
    pub(super) fn devices(&self) -> impl Iterator<Item = (u32, &str)> {
        self.peers.keys().map(|(index, name)| (*index, name.as_str()))
    }
}

fn devices(peer: &PeerWay) -> impl Iterator<Item = (u32, String)> {
    let ecmp_paths = match &peer.way {
        Way::Tunnel(Ok(path)) => &*path.uplinks,
        _ => &[],
    };
    ecmp_paths.iter().map(|ecmp_path| (ecmp_path.index, ecmp_path.name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::underlay::{NotPlain, Path, Uplink};
    use flannel_store::Peer;

    fn by(names: &[&str]) -> PeerWay {
        let uplink = |(index, name): (u32, &&str)| Uplink { index, name: (*name).to_owned(), mtu: 1500 };
        let peer = Peer {
            subnet: "10.244.9.0/24".parse().expect("a prefix"),
            public_ip: "192.168.1.9".parse().expect("an address"),
            end: None,
            key: "10.244.9.0-24".into(),
        };
        let way = match names {
            [] => Err(NotPlain::Unknown),
            names => Ok(Path { uplinks: (2..).zip(names).map(uplink).collect(), next_hop: None }),
        };
        PeerWay { peer, way: Way::Tunnel(way) }
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
        let named = |outlets: &UplinkSet| outlets.devices().map(|(_, name)| name.to_owned()).collect::<Vec<_>>();
        outlets.change(&[], &[by(&["eth0", "eth1"]), by(&["eth0"]), by(&[])]);
        assert_eq!(named(&outlets), ["eth0", "eth1"]);
        outlets.change(&[by(&["eth0", "eth1"])], &[by(&["eth0"])]);
        assert_eq!(named(&outlets), ["eth0"]);
        outlets.change(&[by(&["eth0"])], &[]);
        assert_eq!(named(&outlets), ["eth0"]);
        outlets.change(&[by(&["eth0"])], &[by(&[])]);
        assert!(named(&outlets).is_empty());
    }
}
