//! What an event from the kernel means for the state kept here. No event touches the kernel.

use crate::{
    netlink::{KernelEvent, Link, MAIN_TABLE, Route, RouteKey},
    reconcile::Reconciler,
};

impl Reconciler {
    /// Takes in an event. Whether the next [`Self::apply`] has something to do because of it.
    pub fn observe(&mut self, event: KernelEvent) -> bool {
        match event {
            KernelEvent::Overflow => {
                self.doubt_everything();
                true
            }
            KernelEvent::Rules
            | KernelEvent::Nexthop { .. }
            | KernelEvent::NexthopGone { .. }
            | KernelEvent::XfrmPolicy => {
                self.underlay.forget();
                true
            }
            KernelEvent::Link(link) => self.observe_link(&link),
            KernelEvent::LinkGone { index, .. } => self.observe_link_gone(index),
            KernelEvent::Address(address) => self.observe_address(address.key, true),
            KernelEvent::AddressGone(address) => self.observe_address(address.key, false),
            KernelEvent::Neighbour { key, mac } => {
                self.device.as_ref().is_some_and(|device| device.index == key.ifindex)
                    && self.neighbours.observe(key, mac)
            }
            KernelEvent::Fdb { key, dst } => {
                self.device.as_ref().is_some_and(|device| device.index == key.ifindex) && self.fdb.observe(key, dst)
            }
            KernelEvent::Route { key, route } => self.observe_route(key, route),
        }
    }

    fn observe_link(&mut self, link: &Link) -> bool {
        if link.index == self.setup.external.index {
            // Its MTU, state or type decides whether any path is plain; its routes may have gone with its state.
            self.doubt_everything();
            return true;
        }
        let Some(device) = self.device.as_ref().filter(|device| device.index == link.index) else { return false };
        if !link.up {
            // The kernel takes IPv4 routes and neighbours with a device that goes down, and does not say so.
            self.read_back = true;
        }
        !link.up || link.mtu != device.mtu || link.mac != Some(device.mac)
    }

    fn observe_link_gone(&mut self, index: u32) -> bool {
        let ours = self.device.as_ref().is_some_and(|device| device.index == index);
        if ours {
            self.device = None;
        }
        if ours || index == self.setup.external.index {
            self.doubt_everything();
            return true;
        }
        false
    }

    fn observe_address(&mut self, key: crate::netlink::AddressKey, present: bool) -> bool {
        if key.ifindex == self.setup.external.index {
            self.underlay.forget();
            self.read_back |= !present;
            return true;
        }
        let Some(device) = &self.device else { return false };
        if !present && key.ifindex == device.index {
            // With a device's last IPv4 address the kernel takes all its IPv4 routes, and does not say so.
            self.read_back = true;
        }
        let ours = self.ownership(device).address(&key);
        ours && self.addresses.observe(key, present.then_some(()))
    }

    fn observe_route(&mut self, key: RouteKey, route: Option<Route>) -> bool {
        let Some(device) = &self.device else { return false };
        let ours = self.ownership(device);
        if key.table == MAIN_TABLE && ours.inside(key.dst) {
            let route = route.filter(|route| ours.route(&key, route, self.routes.wanted()));
            return self.routes.observe(key, route);
        }
        self.underlay.forget_under(key.dst)
    }
}
