//! One event: what changed, and how it is now.

use std::net::IpAddr;

use flannel_common::packet::addr::Mac;

use crate::{Address, FdbKey, Link, NeighbourKey, Nexthop, NexthopId, Route, RouteKey};

/// Something changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelEvent {
    /// A link is new or different.
    Link(Link),
    /// A link is gone, and everything on it.
    LinkGone {
        /// Its interface index.
        index: u32,
        /// Its name at the end.
        name: String,
    },
    /// An address is new or different.
    Address(Address),
    /// An address is gone.
    AddressGone(Address),
    /// A route of any table is new or different, or (`None`) one with this key is gone.
    Route {
        /// Its destination, table and metric.
        key: RouteKey,
        /// The route as it is now.
        route: Option<Route>,
    },
    /// A permanent neighbour is new or different, or (`None`) a neighbour is gone that may have
    /// been permanent. One that an administrator turned into a dynamic entry is not announced.
    Neighbour {
        /// Its link and IP address.
        key: NeighbourKey,
        /// Its Ethernet address now.
        mac: Option<Mac>,
    },
    /// A permanent FDB entry of a vxlan device is new, different or gone.
    Fdb {
        /// Its device and Ethernet address.
        key: FdbKey,
        /// Its destination now.
        dst: Option<IpAddr>,
    },
    /// Routing rules changed.
    Rules,
    /// A nexthop object (kernel 5.3) is new or different. The kernel does not report one that
    /// disappears with its device (`nexthop_flush_dev()` in [net/ipv4/nexthop.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/nexthop.c)).
    Nexthop {
        /// Its number.
        id: NexthopId,
        /// The object as it is now.
        nexthop: Nexthop,
    },
    /// A nexthop object is gone, and the routes by it, which the kernel does not report.
    NexthopGone {
        /// Its number.
        id: NexthopId,
        /// The object as it was.
        nexthop: Nexthop,
    },
    /// A qdisc, a filter or a chain of a device changed. TCX programs come and go unannounced.
    TrafficControl {
        /// Interface index of the device; `None` for a block of filters that several devices may
        /// share.
        device: Option<u32>,
    },
    /// The xfrm policies, or their default, changed.
    XfrmPolicy,
    /// Events were lost. Read everything back.
    Overflow,
}
