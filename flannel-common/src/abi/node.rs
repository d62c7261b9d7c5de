//! The node's own data: the value of the `CONFIG` map, which only the agent writes.
//!
//! A program uses the value only while its word is valid and the heartbeat is fresh. The word
//! follows the same protocol as a peer's ([`crate::abi::peer`]): the agent writes an invalid word,
//! the body, the valid word; the reader looks at the word before and after. A heartbeat changes
//! only its time and leaves the word as it is.

use core::mem::{align_of, offset_of, size_of};

use crate::{
    abi::{
        entry_state::EntryState,
        tick::{Tick, age_ns},
    },
    packet::addr::{Addr, Mac},
};

/// Time for which the programs trust their maps after the agent's last heartbeat, in nanoseconds.
pub const HEARTBEAT_LIMIT_NS: u64 = 60_000_000_000;

/// Time for which flows are replayed after the agent's last heartbeat, in nanoseconds. It is short
/// because only the agent notices a new qdisc, filter, XDP program or queue listener, or a changed
/// sysctl.
pub const REPLAY_LIMIT_NS: u64 = 5_000_000_000;

/// Returns true if a heartbeat is recent enough at `now` for the maps to be used. Both times are
/// `CLOCK_MONOTONIC_COARSE` in nanoseconds. A heartbeat further ahead than
/// [`SKEW_NS`](crate::abi::tick::SKEW_NS) is not recent: it is of another clock.
#[inline(always)]
pub const fn heartbeat_is_fresh(now: u64, heartbeat: u64) -> bool {
    age_ns(now, heartbeat) <= HEARTBEAT_LIMIT_NS
}

/// Returns true if a heartbeat is recent enough at `now` for flows to be replayed.
#[inline(always)]
pub const fn heartbeat_allows_replay(now: u64, heartbeat: u64) -> bool {
    age_ns(now, heartbeat) <= REPLAY_LIMIT_NS
}

/// One address family on this node: its network, and its tunnel if it has one. All zero: the family
/// is off.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyConfig {
    /// First address of the flannel network.
    pub network: Addr,
    /// Source of our outer packets and destination of those sent to us: the node's public IP.
    pub vtep: Addr,
    /// Ethernet address of our vxlan device, the `VtepMAC` of our lease; zero without a tunnel.
    pub vtep_mac: Mac,
    /// UDP destination port of the tunnel, network order; zero without a tunnel.
    pub port: [u8; 2],
    /// VXLAN network identifier, host order, 24 bits; zero without a tunnel.
    pub vni: u32,
    /// Right shift that turns an offset into the network into a subnet number: 32 (or 128) -
    /// SubnetLen.
    pub subnet_shift: u32,
    /// Number of subnets in the network: the capacity of the family's peer map.
    pub subnet_count: u32,
    /// Interface index of our tunnel device, of whatever kind; zero without one.
    pub tunnel_ifindex: u32,
    /// Interface index of the external interface.
    pub underlay_ifindex: u32,
    /// Lower end of `net.ipv4.ip_local_port_range`, host order.
    pub source_port_min: u16,
    /// Upper end of it.
    pub source_port_max: u16,
}

impl FamilyConfig {
    /// Returns true if the family has a tunnel that the programs serve. Without one its peers are
    /// direct ones.
    #[inline(always)]
    pub const fn has_tunnel(&self) -> bool {
        self.port[0] | self.port[1] != 0
    }
}

/// The value of the `CONFIG` map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeConfig {
    /// Valid bit and generation.
    pub word: EntryState,
    /// The agent's last heartbeat, `CLOCK_MONOTONIC_COARSE`, nanoseconds.
    pub heartbeat_ns: u64,
    /// Flows learned before this tick were learned while no userspace program could hold packets
    /// unnoticed: no NFQUEUE had a listener, or NAPI polls were counted.
    pub confirmed: Tick,
    /// Zero.
    pub reserved: u32,
    /// IPv4.
    pub v4: FamilyConfig,
    /// IPv6.
    pub v6: FamilyConfig,
}

impl NodeConfig {
    /// Returns true if a family may have a tunnel: also before the agent has written the families.
    pub const fn has_tunnel(&self) -> bool {
        let is_off = self.v4.subnet_count | self.v6.subnet_count == 0;
        is_off || self.v4.has_tunnel() || self.v6.has_tunnel()
    }
}

const _: () = {
    assert!(size_of::<FamilyConfig>() == 64 && align_of::<FamilyConfig>() == 4);
    assert!(size_of::<NodeConfig>() == 152 && align_of::<NodeConfig>() == 8);
    assert!(offset_of!(NodeConfig, v4) == 24 && offset_of!(NodeConfig, v6) == 88);
    assert!(offset_of!(FamilyConfig, vni) == 40 && offset_of!(FamilyConfig, source_port_min) == 60);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::tick::SKEW_NS;

    #[test]
    fn an_agent_is_trusted_for_sixty_seconds() {
        let heartbeat = 5_000_000_000;
        assert!(heartbeat_is_fresh(heartbeat, heartbeat));
        assert!(heartbeat_is_fresh(
            heartbeat + HEARTBEAT_LIMIT_NS,
            heartbeat
        ));
        assert!(!heartbeat_is_fresh(
            heartbeat + HEARTBEAT_LIMIT_NS + 1,
            heartbeat
        ));
        assert!(
            heartbeat_is_fresh(heartbeat, heartbeat + 1),
            "written since the clock was read"
        );
        assert!(
            !heartbeat_is_fresh(heartbeat, heartbeat + SKEW_NS + 1),
            "a heartbeat of another clock does not count"
        );
        assert!(
            !heartbeat_is_fresh(HEARTBEAT_LIMIT_NS + 1, 0),
            "an agent that never beat"
        );
    }

    #[test]
    fn flows_are_replayed_for_five_seconds_without_an_agent() {
        let heartbeat = 5_000_000_000;
        assert!(
            heartbeat_allows_replay(heartbeat, heartbeat)
                && heartbeat_allows_replay(heartbeat + REPLAY_LIMIT_NS, heartbeat)
        );
        assert!(!heartbeat_allows_replay(
            heartbeat + REPLAY_LIMIT_NS + 1,
            heartbeat
        ));
        assert!(
            heartbeat_allows_replay(heartbeat, heartbeat + 1),
            "written since the clock was read"
        );
        assert!(
            !heartbeat_allows_replay(heartbeat, heartbeat + SKEW_NS + 1),
            "a heartbeat of another clock does not count"
        );
    }
}
