//! Connected routes of other devices to prefixes that are peers' subnets here: the bridge of a node
//! that lost its subnet to another node, while its pods still run.
//!
//! Such a route has the key of our route, and the kernel's request to replace would remove it for
//! good: the kernel makes it only with the address. So it always stays. Ours is left out while only
//! pods of the former subnet use the device, because this host reaches them by it. When the device
//! has an address of our subnet too, new pods use it, which have to reach the other node: then our
//! route comes first, and the connected one counts again after ours is gone.

use std::collections::{BTreeMap, BTreeSet};

use flannel_netlink::{Address, Netlink, NetlinkError, Route, RouteKey};
use ipnet::IpNet;

/// The connected routes of other devices, by their key.
#[derive(Debug, Default)]
pub(super) struct ConnectedRoutes {
    routes: BTreeMap<RouteKey, ConnectedDevice>,
    /// Our own subnet.
    own: Option<IpNet>,
}

/// The device of a connected route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectedDevice {
    index: u32,
    name: String,
    /// It has an address of this node's subnet.
    has_own_pods: bool,
}

impl ConnectedDevice {
    /// True if our route may come before the connected one.
    pub(super) const fn gives_way(&self) -> bool {
        self.has_own_pods
    }

    /// The reason why our route is not made.
    pub(super) fn refusal(&self, key: &RouteKey) -> String {
        format!(
            "{} has an address in {}, and its connected route is left: pods of this node may have \
             addresses of that \
             subnet, which is another node's; delete them, then the address ({})",
            self.name, key.dst, self.name
        )
    }
}

impl ConnectedRoutes {
    /// Our own subnet is this one. Returns true if it was another.
    pub(super) fn set_own(&mut self, own: IpNet) -> bool {
        self.own.replace(own) != Some(own)
    }

    /// Takes in all routes of the family. Returns the keys whose connected route is gone, or gives
    /// way by now.
    pub(super) async fn read(
        &mut self,
        netlink: &Netlink,
        tunnel: Option<u32>,
        network: IpNet,
        routes: &[(RouteKey, Route)],
    ) -> Result<Vec<RouteKey>, NetlinkError> {
        let found: Vec<_> = routes
            .iter()
            .filter_map(|(key, route)| connected(key, route, tunnel, network))
            .collect();
        let mut devices = BTreeMap::new();
        if found.iter().any(|(key, _)| Some(key.dst) != self.own) {
            let addresses = netlink.addresses().await?;
            for index in found
                .iter()
                .map(|(_, index)| *index)
                .collect::<BTreeSet<_>>()
            {
                let name = netlink
                    .link_by_index(index)
                    .await?
                    .map_or_else(String::new, |link| link.name);
                devices.insert(
                    index,
                    ConnectedDevice {
                        index,
                        name,
                        has_own_pods: self.has_own_pods(index, &addresses),
                    },
                );
            }
        }
        let routes: BTreeMap<_, _> = found
            .into_iter()
            .filter_map(|(key, index)| Some((key, devices.get(&index)?.clone())))
            .collect();
        let former = std::mem::replace(&mut self.routes, routes);
        let is_free = |key: &RouteKey| self.routes.get(key).is_none_or(ConnectedDevice::gives_way);
        Ok(former
            .into_iter()
            .filter(|(key, device)| is_free(key) && !device.gives_way())
            .map(|(key, _)| key)
            .collect())
    }

    fn has_own_pods(&self, index: u32, addresses: &[Address]) -> bool {
        let of_device = addresses
            .iter()
            .filter(|address| address.key.ifindex == index);
        self.own.is_some_and(|own| {
            of_device
                .into_iter()
                .any(|address| own.contains(&address.key.addr))
        })
    }

    /// The device with a connected route of this key.
    pub(super) fn device(&self, key: &RouteKey) -> Option<&ConnectedDevice> {
        self.routes.get(key)
    }

    /// The keys of all.
    pub(super) fn keys(&self) -> impl Iterator<Item = &RouteKey> {
        self.routes.keys()
    }

    /// Returns true if addresses of this device decide about one of our routes.
    pub(super) fn concerns(&self, index: u32) -> bool {
        self.routes.values().any(|device| device.index == index)
    }
}

/// The key and the device of a route that is a connected one of another device.
pub(super) fn connected(
    key: &RouteKey,
    route: &Route,
    tunnel: Option<u32>,
    network: IpNet,
) -> Option<(RouteKey, u32)> {
    let device = route
        .oif
        .filter(|oif| route.is_connected() && Some(*oif) != tunnel)?;
    network.contains(&key.dst).then_some((*key, device))
}
