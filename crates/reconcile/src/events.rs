//! The effect of kernel events on the state kept here. No event changes the kernel.

use flannel_host::family::Family;
use flannel_netlink::{Address, KernelEvent, Link, Nexthop, NexthopId, Route, RouteKey};

use crate::{Reconciler, plane::Plane};

impl Reconciler {
    /// Takes in an event. Returns true if the next [`Self::apply`] has something to do because of
    /// it.
    pub fn observe(&mut self, event: &KernelEvent) -> bool {
        let dirty = self
            .planes
            .iter_mut()
            .fold(false, |dirty, plane| plane.observe(event) | dirty);
        self.offloads.observe(event) | self.fast.observe(event) | dirty
    }
}

impl Plane {
    fn observe(&mut self, event: &KernelEvent) -> bool {
        match event {
            KernelEvent::Overflow => {
                self.invalidate_all();
                true
            }
            KernelEvent::Rules => {
                self.mark_paths_stale();
                true
            }
            KernelEvent::XfrmPolicy => {
                self.mark_paths_stale();
                self.read_back |= self.state.entries.has_policies();
                true
            }
            KernelEvent::Nexthop { id, nexthop } => self.observe_nexthop(*id, nexthop, false),
            KernelEvent::NexthopGone { id, nexthop } => self.observe_nexthop(*id, nexthop, true),
            KernelEvent::TrafficControl { .. } => false,
            KernelEvent::Link(link) => self.observe_link(link),
            KernelEvent::LinkGone { index, .. } => self.observe_link_gone(*index),
            KernelEvent::Address(address) => self.observe_address(address, true),
            KernelEvent::AddressGone(address) => self.observe_address(address, false),
            KernelEvent::Neighbour { key, mac } => {
                self.ownership().neighbour(key) && self.state.entries.neighbours.observe(*key, *mac)
            }
            KernelEvent::Fdb { key, dst } => {
                self.ownership().fdb(key) && self.state.entries.fdb.observe(*key, *dst)
            }
            KernelEvent::Route { key, route } => self.observe_route(*key, route.as_ref()),
        }
    }

    fn observe_link(&mut self, link: &Link) -> bool {
        if link.index == self.external.index {
            // Its MTU, state or type decides whether any path is plain; its routes may have gone
            // with its state.
            self.invalidate_all();
            return true;
        }
        let Some(device) = self
            .tunnel
            .device
            .as_ref()
            .filter(|device| device.index == link.index)
        else {
            return self.observe_uplink(link);
        };
        if !link.up {
            // The kernel takes routes, neighbours and IPv6 addresses with a device that goes down,
            // and does not say so of all.
            self.read_back = true;
        }
        // The device of the backend udp has a carrier while its process has it open.
        let is_left = self.tunnel.needs_carrier() && !link.running;
        is_left
            || !link.up
            || link.mtu != device.mtu
            || device.vtep.is_some_and(|vtep| link.mac != Some(vtep.mac))
    }

    /// By another device than the external interface routes to peers may lead.
    fn observe_uplink(&mut self, link: &Link) -> bool {
        let differs = self.underlay.differs(link);
        if differs {
            self.mark_paths_stale();
        }
        differs
    }

    fn observe_link_gone(&mut self, index: u32) -> bool {
        let ours = self
            .tunnel
            .device
            .as_ref()
            .is_some_and(|device| device.index == index);
        if ours {
            self.tunnel.device = None;
        }
        if ours || index == self.external.index {
            self.invalidate_all();
            return true;
        }
        let leads_there = self.underlay.leads_by(index);
        if leads_there {
            self.mark_paths_stale();
        }
        leads_there
    }

    fn observe_address(&mut self, Address { key, .. }: &Address, present: bool) -> bool {
        if Family::of(key.addr) != self.family {
            return false;
        }
        if key.ifindex == self.external.index {
            self.mark_paths_stale();
            self.read_back |= !present;
            return true;
        }
        if self.state.entries.connected.concerns(key.ifindex) {
            self.read_back = true;
            return true;
        }
        let ours = self.ownership();
        if !present && ours.tunnel == Some(key.ifindex) {
            // With a device's last IPv4 address the kernel takes all its IPv4 routes, and does not
            // say so (`fib_inetaddr_event()` in net/ipv4/fib_frontend.c, Linux 6.1:
            // <https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/fib_frontend.c>).
            self.read_back = true;
        }
        ours.address(key)
            && self
                .state
                .entries
                .addresses
                .observe(*key, present.then_some(()))
    }

    /// By one that is not ours the routes to peers may lead; IPv6 ones not by an IPv4 gateway.
    fn observe_nexthop(&mut self, id: NexthopId, nexthop: &Nexthop, gone: bool) -> bool {
        if self.family == Family::V6 && nexthop.gateway.is_some_and(|gateway| gateway.is_ipv4()) {
            return false;
        }
        let differs = self
            .state
            .entries
            .observe_nexthop(&self.ownership(), id, nexthop, gone);
        differs.unwrap_or_else(|| {
            self.mark_paths_stale();
            true
        })
    }

    fn observe_route(&mut self, key: RouteKey, route: Option<&Route>) -> bool {
        if key.family() != self.family {
            return false;
        }
        let ours = self.ownership();
        let contested = self.state.unreachable.observe(key, route);
        if self.state.entries.is_beside_connected(&ours, &key, route) {
            self.read_back = true;
            return true;
        }
        let differs = self.state.entries.observe_route(&ours, key, route);
        differs.unwrap_or_else(|| self.turns.peers.mark_stale_under(key.dst)) | contested
    }
}
