//! The packet that a program on this CPU has redirected last. It arrives at `to_underlay` at once,
//! and is recognised there by its tag (`tc_index`), or by its address if another program has
//! changed the tag in between.
//!
//! The kernel gives the address of a packet that is gone to a later one, for example to a pod's. So
//! an address is forgotten when its packet arrives, and soon after that if it does not: it may wait
//! for its next hop's Ethernet address, and then arrives with its tag, on any CPU.

use flannel_common::program::SELF_SENT;

use crate::packet::skb::Skb;

/// The packet arrives within a tick of the coarse clock, which is 10 ms at most.
const LIMIT_NS: u64 = 20_000_000;

/// The address of the packet, and when it was redirected.
#[repr(C)]
pub(crate) struct Redirected {
    skb: u64,
    at: u64,
}

impl Redirected {
    /// Tags the packet as our own, and remembers it.
    #[inline(always)]
    pub(crate) fn mark(&mut self, skb: &Skb, now: u64) {
        skb.set_tc_index(SELF_SENT);
        self.skb = skb.raw() as u64;
        self.at = now;
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.skb = 0;
    }

    /// Returns true if it is this packet, once.
    #[inline(always)]
    pub(crate) fn take(&mut self, skb: &Skb, now: u64) -> bool {
        let is_it = self.skb == skb.raw() as u64 && now.wrapping_sub(self.at) < LIMIT_NS;
        if is_it {
            self.clear();
        }
        is_it
    }
}
