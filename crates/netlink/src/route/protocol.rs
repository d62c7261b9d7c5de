//! Route protocol numbers (`rtm_protocol`): who made the route.

/// `kernel`: the routes to the prefixes of a device's addresses.
pub const KERNEL: u8 = 2;
/// `boot`: what `ip route` writes without `proto`, and stock flannel on all its routes.
pub const BOOT: u8 = 3;
/// Ours, on the routes that do not go through the tunnel device.
pub const FLANNEL: u8 = 191;
