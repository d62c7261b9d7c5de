//! The packet that a program on this CPU has redirected last. It arrives at `to_underlay` at once,
//! and is recognised there by its tag (`tc_index`), or by its address if another program has
//! changed the tag in between.
//!
//! The kernel gives the address of a packet that is gone to a later one, for example to a pod's. So
//! a packet gets a number when it arrives, in a word of its control block (`cb`) that nothing else
//! sets. While the agent changes the kind of attachment, the device has `to_underlay` twice: the
//! second one finds the tag removed, and recognises the packet by address and number. A later
//! packet has no number. The address of a packet that does not arrive is forgotten soon: it may
//! wait for its next hop's Ethernet address, and then arrives with its tag, on any CPU.

use flannel_common::abi::program::SELF_SENT;

use crate::packet::skb::Skb;

/// The packet arrives within a tick of the coarse clock, which is 10 ms at most.
const LIMIT_NS: u64 = 20_000_000;

/// The address of the packet, and when it was redirected.
#[repr(C)]
pub(crate) struct Redirected {
    skb: u64,
    at: u64,
    /// The number that the packet got at its arrival; 0 until then.
    number: u32,
    /// The last number that was given.
    last: u32,
}

impl Redirected {
    /// Tags the packet as our own, and remembers it.
    #[inline(always)]
    pub(crate) fn mark(&mut self, skb: &Skb, now: u64) {
        skb.set_tc_index(SELF_SENT);
        self.skb = skb.raw() as u64;
        self.at = now;
        self.number = 0;
    }

    /// Numbers a packet that has arrived.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, skb: &Skb) {
        // Odd, so never 0.
        self.last = self.last.wrapping_add(2) | 1;
        self.number = self.last;
        skb.set_arrival(self.number);
    }

    /// Returns true if it is this packet, which has its number then.
    #[inline(always)]
    pub(crate) fn recognise(&mut self, skb: &Skb, now: u64) -> bool {
        let is_same = self.skb == skb.raw() as u64 && now.wrapping_sub(self.at) < LIMIT_NS;
        if is_same && self.number == 0 {
            self.arrive(skb);
        }
        is_same && self.number == skb.arrival()
    }
}
