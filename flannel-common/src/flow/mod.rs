//! Flows: what the kernel was seen to do to one packet, to be done to the next ones.
//!
//! The key is the end at which packets enter, the body the end at which they leave and what goes
//! with it. A flow is usable while its stamp is valid and its generation is the current one. A flow
//! that needs its reverse flow (all TCP does) is usable only while that is usable too.
//!
//! Values live in an LRU map, whose elements are recycled at once. A reader therefore copies the
//! value and compares the stamps with the check word over key and body: a value that is not this
//! key's says nothing.

pub mod arrival;
pub(crate) mod check;
pub mod class;
pub mod connection;
pub(crate) mod difference;
pub mod expiry;
pub mod flow_hint;
pub mod flow_key;
pub mod pending;
pub mod probation;
pub mod window;

use core::mem::{offset_of, size_of};

use crate::{
    abi::{
        reason::Reason,
        tick::{Tick, is_ahead},
    },
    flow::{
        arrival::Arrival,
        check::Check,
        class::Class,
        expiry::Expiry,
        flow_key::{Address, FlowKey},
        window::Window,
    },
    packet::inner::FrameAddresses,
};

/// The bits of a TOS or traffic class that are the DSCP.
const DSCP: u8 = 0xfc;

/// The exit by which a packet leaves the observed stretch.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Egress(pub u8);

impl Egress {
    /// Not known: no packet of the flow was learned from.
    pub const NONE: Self = Self(0);
    /// Into the tunnel, to the peer whose subnet has the destination.
    pub const TUNNEL: Self = Self(1);
    /// Into a pod, by the host side of its veth.
    pub const POD: Self = Self(2);
    /// By a plain route to a direct peer: by the external interface without a tunnel, or by a
    /// tunnel device without Ethernet.
    pub const DIRECT: Self = Self(3);
    /// By the external interface to a host that is not a pod of the cluster. The kernel's FIB must
    /// return that route for each packet.
    pub const OUTSIDE: Self = Self(4);
}

/// The treatment of the packets of a flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowAction<A> {
    /// Key with which the packet leaves.
    pub out: FlowKey<A>,
    /// Generation of the mode word under which this was seen.
    pub generation: u32,
    /// `skb->mark` at the exit; 0 for a pod, which sees none.
    pub mark: u32,
    /// `skb->priority` at the exit; 0 for a pod.
    pub priority: u32,
    /// A number of the egress. Into a tunnel the kernel's flow hash at the exit, for packets that
    /// carry none; never 0. Outside the interface index by which the kernel routed the packet. Into
    /// a pod the slot of its counter in `POD_TRAFFIC`. To a direct peer 0.
    pub egress_data: u32,
    /// The IPv6 flow label of the packets, as it lies in them; 0 for IPv4.
    pub flow_label: u32,
    /// Ethernet addresses at the entry. A frame with others is the kernel's.
    pub entry: FrameAddresses,
    /// Ethernet addresses at the exit; zero into a tunnel, where the peer map has them.
    pub exit: FrameAddresses,
    /// The largest IP packet (of one segment) the way out takes.
    pub mtu: u16,
    /// Kind of egress.
    pub egress: Egress,
    /// By how much the TTL sinks: 0 or 1.
    pub ttl_step: u8,
    /// 1 if the flow may be used only while its mirror may.
    pub needs_mirror: u8,
    /// 1 if merged packets may take this way: the pod it leads to has no devices that would have to
    /// segment them.
    pub takes_merged: u8,
    /// TOS or traffic class at the entry. The DSCP in it belongs to the flow, the ECN bits do not.
    pub tos: u8,
    /// TTL or hop limit at the entry.
    pub ttl: u8,
}

impl<A: Address> FlowAction<A> {
    /// The key of the way back: there must be exactly our own key, reversed.
    #[inline(always)]
    pub fn mirror_key(&self) -> FlowKey<A> {
        self.out.reversed()
    }

    /// Returns true if `mirror`, found at [`Self::mirror_key`], is the reverse of the flow with
    /// this key.
    #[inline(always)]
    pub fn is_mirrored_by(key: &FlowKey<A>, mirror: &Self) -> bool {
        mirror.out.same(&key.reversed())
    }

    /// Returns true if both treat packets alike.
    #[inline(always)]
    pub fn same(&self, other: &Self) -> bool {
        let numbers = self.generation ^ other.generation
            | self.mark ^ other.mark
            | self.priority ^ other.priority
            | self.egress_data ^ other.egress_data
            | self.flow_label ^ other.flow_label
            | u32::from(self.mtu ^ other.mtu);
        let kinds = self.egress.0 ^ other.egress.0
            | self.ttl_step ^ other.ttl_step
            | self.needs_mirror ^ other.needs_mirror
            | self.takes_merged ^ other.takes_merged
            | self.field_difference(other.tos, other.ttl);
        let addresses = self.entry.difference(&other.entry) | self.exit.difference(&other.exit);
        difference::is_none(
            self.out.difference(&other.out) | numbers | u32::from(kinds) | u32::from(addresses),
        )
    }

    /// Mark and priority at the exit.
    #[inline(always)]
    pub const fn class(&self) -> Class {
        Class {
            mark: self.mark,
            priority: self.priority,
        }
    }

    /// Packets with this TOS and TTL at the entry are of the kind that was observed: netfilter
    /// rules can match on both, so others are the kernel's.
    #[inline(always)]
    pub const fn has_fields(&self, tos: u8, ttl: u8) -> bool {
        self.field_difference(tos, ttl) == 0
    }

    #[inline(always)]
    const fn field_difference(&self, tos: u8, ttl: u8) -> u8 {
        (self.tos ^ tos) & DSCP | (self.ttl ^ ttl)
    }

    /// The check word of this body at this key.
    #[inline(always)]
    pub fn check(&self, key: &FlowKey<A>) -> u32 {
        let mut check = Check::new();
        key.check(&mut check);
        self.out.check(&mut check);
        check.word(self.generation);
        check.word(self.mark);
        check.word(self.priority);
        check.word(self.egress_data);
        check.word(self.flow_label);
        self.entry.check(&mut check);
        self.exit.check(&mut check);
        let [mtu_high, mtu_low] = self.mtu.to_ne_bytes();
        check.word(u32::from_ne_bytes([
            mtu_high,
            mtu_low,
            self.egress.0,
            self.ttl_step,
        ]));
        check.word(u32::from_ne_bytes([
            self.needs_mirror,
            self.takes_merged,
            self.tos & DSCP,
            self.ttl,
        ]));
        check.finish()
    }
}

/// The value of `FLOWS` and `FLOWS6`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow<A> {
    /// Until when this was seen recently enough; or since when the flow is closed.
    pub seen: Expiry,
    /// Until when the way back was.
    pub mirror: Expiry,
    /// Packets that found the flow usable; of an expected flow, the sum of their weights
    /// ([`crate::flow::connection::weight`]). Bit 63 marks a flow that is not confirmed, bit 62 one
    /// on probation. Not covered by the check, like the next three, and not exact when an element
    /// is recycled.
    pub packets: u64,
    /// Bytes of these packets, as in [`crate::abi::traffic`].
    pub bytes: u64,
    /// When it was learned for the first time.
    pub first: Tick,
    /// The last packet that found it usable; when it was learned if there was none since.
    pub last: Tick,
    /// The numbers of its packets that bound those of its reverse flow. Not covered by the check.
    pub window: Window,
    /// The arrival at the node of the packet from which it was learned, if that came out of the
    /// tunnel. Not covered by the check.
    pub arrival: Arrival,
    /// The treatment of its packets.
    pub action: FlowAction<A>,
}

impl<A: Address> Flow<A> {
    /// Bit of [`Self::packets`] of a flow that is not confirmed and was not replayed yet.
    const NEW: u64 = 1 << 63;
    /// Bit of [`Self::packets`] of a flow on probation ([`crate::flow::probation`]).
    const ON_PROBATION: u64 = 1 << 62;

    /// Counts from zero, for a flow that is learned for the first time.
    #[inline(always)]
    pub const fn begin_counts(&mut self, now: Tick) {
        (self.packets, self.bytes, self.first) = (0, 0, now);
    }

    /// Continues the counts of a flow with the same key that it takes the place of. One that was
    /// only expected, or whose connection was closed, has none.
    #[inline(always)]
    pub const fn continue_counts(&mut self, former: &Self, check: u32) {
        if former.seen.is_of(check) {
            (self.packets, self.bytes, self.first) = (former.used(), former.bytes, former.first);
        }
    }

    /// Says that the flow, with this check word, was learned now and is good until then, and its
    /// way back until `mirror`. Its counts stay.
    #[inline(always)]
    pub const fn stamp(&mut self, check: u32, now: Tick, until: Tick, mirror: Option<Tick>) {
        self.seen = Expiry::until(check, until);
        self.mirror = match mirror {
            Some(until) => Expiry::until(check, until),
            None => Expiry::NONE,
        };
        self.packets = Self::NEW | self.used();
        self.last = now;
    }

    /// Marks a flow that was just learned as confirmed: no process can have held its packet.
    #[inline(always)]
    pub const fn confirm(&mut self) {
        self.packets &= !Self::NEW;
    }

    /// Marks a flow as one on probation.
    #[inline(always)]
    pub const fn put_on_probation(&mut self) {
        self.packets |= Self::ON_PROBATION;
    }

    /// Marks a flow as one of the table.
    #[inline(always)]
    pub const fn take_off_probation(&mut self) {
        self.packets &= !Self::ON_PROBATION;
    }

    /// Returns true for a flow on probation.
    #[inline(always)]
    pub const fn is_on_probation(&self) -> bool {
        self.packets & Self::ON_PROBATION != 0
    }

    /// Returns true for a flow on probation of which no packet was seen since the SYN-ACK of its
    /// connection: the next one is recorded.
    #[inline(always)]
    pub const fn is_expected(&self) -> bool {
        self.is_on_probation() && self.seen.0 == Expiry::NONE.0
    }

    /// Packets that found the flow usable. They were replayed, but for those with which the peer,
    /// the path or the packet's own size or fields did not agree.
    #[inline(always)]
    pub const fn used(&self) -> u64 {
        self.packets & !(Self::NEW | Self::ON_PROBATION)
    }

    /// Returns [`Self::packets`] after one more packet, which shows that the flow is confirmed.
    #[inline(always)]
    pub const fn counted(&self) -> u64 {
        (self.packets & !Self::NEW) + 1
    }

    /// Ok if a packet may be treated as seen, else the reason why not. Flows learned before the
    /// tick `confirmed` were learned from packets that userspace had not held.
    #[inline(always)]
    pub const fn usable(
        &self,
        check: u32,
        generation: u32,
        now: Tick,
        confirmed: Tick,
    ) -> Result<(), Reason> {
        if self.seen.is_closed(check, now) {
            return Err(Reason::FlowClosed);
        }
        if !self.is_current(check, generation, now) {
            return Err(if self.is_expected() {
                Reason::Handshake
            } else {
                Reason::Refreshing
            });
        }
        if self.packets & Self::NEW != 0 && !is_ahead(confirmed, self.last) {
            return Err(Reason::Unconfirmed);
        }
        if self.action.needs_mirror == 0 || self.mirror.is_current(check, now) {
            Ok(())
        } else {
            Err(Reason::ReverseMissing)
        }
    }

    /// Returns true if the kernel handled a packet of it recently enough, whatever the generation,
    /// and either one of the reverse flow as well or others were replayed without one.
    #[inline(always)]
    pub const fn is_in_use(&self, check: u32, now: Tick) -> bool {
        let is_one_way = self.action.needs_mirror == 0 && self.used() > 0;
        self.seen.is_current(check, now) && (is_one_way || self.mirror.is_current(check, now))
    }

    /// Returns true if the kernel handled a packet of it recently enough, under the generation in
    /// force.
    #[inline(always)]
    pub const fn is_current(&self, check: u32, generation: u32, now: Tick) -> bool {
        self.seen.is_current(check, now) && self.action.generation == generation
    }
}

const _: () = {
    assert!(size_of::<FlowAction<[u32; 1]>>() == 72 && size_of::<FlowAction<[u32; 4]>>() == 96);
    assert!(size_of::<Flow<[u32; 1]>>() == 144 && size_of::<Flow<[u32; 4]>>() == 168);
    assert!(offset_of!(Flow<[u32; 1]>, action) == 72);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::flow_key::tests::flow_key;
    use crate::packet::addr::Mac;

    const KEY_DEVICE: u32 = 5;
    const OUT_DEVICE: u32 = 9;

    fn key() -> FlowKey<[u32; 1]> {
        flow_key([10, 244, 1, 5], 40000, [10, 96, 0, 1], 80, KEY_DEVICE)
    }

    fn action() -> FlowAction<[u32; 1]> {
        let out = flow_key([10, 244, 1, 5], 40000, [10, 244, 7, 9], 8080, OUT_DEVICE);
        FlowAction {
            out,
            generation: 3,
            mtu: 1450,
            egress: Egress::TUNNEL,
            ttl_step: 1,
            needs_mirror: 1,
            ..FlowAction::default()
        }
    }

    #[test]
    fn the_way_back_through_nat_is_the_mirror() {
        let back = action().mirror_key();
        assert_eq!(
            back,
            flow_key([10, 244, 7, 9], 8080, [10, 244, 1, 5], 40000, OUT_DEVICE)
        );
        let out = flow_key([10, 96, 0, 1], 80, [10, 244, 1, 5], 40000, KEY_DEVICE);
        assert!(FlowAction::is_mirrored_by(
            &key(),
            &FlowAction { out, ..action() }
        ));
        let spoofed = flow_key([10, 244, 7, 9], 8080, [10, 244, 1, 5], 40000, KEY_DEVICE);
        assert!(
            !FlowAction::is_mirrored_by(
                &key(),
                &FlowAction {
                    out: spoofed,
                    ..action()
                }
            ),
            "not translated back"
        );
        let elsewhere = FlowKey {
            device: KEY_DEVICE + 1,
            ..out
        };
        assert!(
            !FlowAction::is_mirrored_by(
                &key(),
                &FlowAction {
                    out: elsewhere,
                    ..action()
                }
            ),
            "into another pod"
        );
    }

    #[test]
    fn a_flow_is_usable_while_seen_mirrored_and_of_this_generation() {
        let check = action().check(&key());
        let mut flow = Flow {
            action: action(),
            ..Flow::default()
        };
        flow.stamp(check, 10, 100, None);
        assert_eq!(flow.usable(check, 3, 50, 11), Err(Reason::ReverseMissing));
        flow.mirror = Expiry::until(check, 90);
        assert_eq!(flow.usable(check, 3, 50, 11), Ok(()));
        assert_eq!(flow.usable(check, 3, 95, 11), Err(Reason::ReverseMissing));
        assert_eq!(flow.usable(check, 3, 100, 11), Err(Reason::Refreshing));
        assert_eq!(flow.usable(check, 4, 50, 11), Err(Reason::Refreshing));
        flow.seen = Expiry::closed(check, 100);
        assert_eq!(flow.usable(check, 3, 50, 11), Err(Reason::FlowClosed));
        assert_eq!(flow.usable(check, 3, 100, 11), Err(Reason::Refreshing));
    }

    #[test]
    fn a_new_flow_is_usable_once_confirmed_and_stays_so() {
        let action = FlowAction {
            needs_mirror: 0,
            ..action()
        };
        let check = action.check(&key());
        let mut flow = Flow {
            action,
            ..Flow::default()
        };
        flow.stamp(check, 50, 1000, None);
        for before in [0, 49, 50] {
            assert_eq!(
                flow.usable(check, 3, 60, before),
                Err(Reason::Unconfirmed),
                "confirmed at {before}"
            );
        }
        assert_eq!(flow.usable(check, 3, 60, 51), Ok(()));
        assert_eq!(flow.used(), 0);
        flow.packets = flow.counted();
        assert_eq!(
            flow.usable(check, 3, 60, 0),
            Ok(()),
            "no look back once it was used"
        );
        assert_eq!(flow.used(), 1);
    }

    #[test]
    fn a_flow_that_is_learned_again_continues_the_counts_of_its_key() {
        let check = action().check(&key());
        let mut former = Flow {
            action: action(),
            ..Flow::default()
        };
        former.begin_counts(7);
        former.stamp(check, 10, 100, None);
        former.put_on_probation();
        former.confirm();
        for _ in 0..3 {
            (former.packets, former.bytes) = (former.counted(), former.bytes + 1000);
        }
        let learned = |former: &Flow<_>| {
            let mut flow = Flow {
                action: FlowAction {
                    generation: 4,
                    ..action()
                },
                packets: 99,
                ..Flow::default()
            };
            flow.begin_counts(200);
            flow.continue_counts(former, check);
            flow.stamp(flow.action.check(&key()), 200, 300, None);
            (flow.used(), flow.bytes, flow.first, flow.last)
        };
        assert_eq!(
            learned(&former),
            (3, 3000, 7, 200),
            "the refresh took place under another generation"
        );
        assert_eq!(
            learned(&Flow {
                seen: Expiry::closed(check, 100),
                ..former
            }),
            (0, 0, 200, 200),
            "closed"
        );
        assert_eq!(
            learned(&Flow {
                seen: Expiry::NONE,
                ..former
            }),
            (0, 0, 200, 200),
            "only expected"
        );
        assert_eq!(
            learned(&Flow {
                seen: Expiry::until(check ^ 2, 100),
                ..former
            }),
            (0, 0, 200, 200),
            "another's"
        );
    }

    #[test]
    fn a_flow_on_probation_is_expected_until_a_packet_of_it_was_learned() {
        let check = action().check(&key());
        let mut flow = Flow {
            action: action(),
            ..Flow::default()
        };
        flow.put_on_probation();
        assert_eq!(flow.usable(check, 3, 50, 11), Err(Reason::Handshake));
        assert!(flow.is_expected() && !flow.is_in_use(check, 50));
        flow.stamp(check, 10, 100, Some(90));
        flow.put_on_probation();
        assert_eq!(flow.usable(check, 3, 50, 10), Err(Reason::Unconfirmed));
        flow.confirm();
        assert_eq!(flow.usable(check, 3, 50, 10), Ok(()));
        assert!(flow.is_on_probation() && flow.is_in_use(check, 89) && !flow.is_in_use(check, 90));
        for count in 1..3 {
            flow.packets = flow.counted();
            assert_eq!((flow.used(), flow.is_on_probation()), (count, true));
        }
        assert_eq!(
            flow.usable(check, 3, 100, 11),
            Err(Reason::Refreshing),
            "expired, no longer expected"
        );
        flow.stamp(check, 10, 100, None);
        assert!(!flow.is_on_probation(), "learned for the table");
    }

    #[test]
    fn the_dscp_and_the_ttl_belong_to_a_flow_and_ecn_does_not() {
        let action = FlowAction {
            tos: 0xb9,
            ttl: 64,
            ..action()
        };
        for ecn in 0..4 {
            assert!(action.has_fields(0xb8 | ecn, 64));
            assert_eq!(
                FlowAction {
                    tos: 0xb8 | ecn,
                    ..action
                }
                .check(&key()),
                action.check(&key())
            );
        }
        assert!(
            !action.has_fields(0xbc, 64)
                && !action.has_fields(0x38, 64)
                && !action.has_fields(0xb9, 63)
        );
    }

    #[test]
    fn udp_goes_one_way_where_conntrack_was_seen() {
        let action = FlowAction {
            needs_mirror: 0,
            ..action()
        };
        let check = action.check(&key());
        let mut flow = Flow {
            action,
            ..Flow::default()
        };
        flow.stamp(check, 10, 100, None);
        assert_eq!(flow.usable(check, 3, 50, 11), Ok(()));
    }

    #[test]
    fn every_field_of_key_and_body_is_checked() {
        let (key, one) = (key(), action());
        let check = one.check(&key);
        let mac = FrameAddresses::new(Mac([2, 0, 0, 0, 0, 1]), Mac::default());
        let from = FrameAddresses::new(Mac::default(), Mac([0, 0, 0, 0, 0, 1]));
        let others = [
            FlowAction {
                out: FlowKey {
                    device: 1,
                    ..one.out
                },
                ..one
            },
            FlowAction {
                out: FlowKey {
                    ports: 1,
                    ..one.out
                },
                ..one
            },
            FlowAction {
                generation: 4,
                ..one
            },
            FlowAction { mark: 1, ..one },
            FlowAction { priority: 1, ..one },
            FlowAction {
                egress_data: 1,
                ..one
            },
            FlowAction {
                flow_label: 1,
                ..one
            },
            FlowAction { entry: mac, ..one },
            FlowAction { entry: from, ..one },
            FlowAction { exit: mac, ..one },
            FlowAction { exit: from, ..one },
            FlowAction { mtu: 1451, ..one },
            FlowAction {
                egress: Egress::POD,
                ..one
            },
            FlowAction { ttl_step: 0, ..one },
            FlowAction {
                needs_mirror: 0,
                ..one
            },
            FlowAction {
                takes_merged: 1,
                ..one
            },
            FlowAction { tos: 0x04, ..one },
            FlowAction { ttl: 1, ..one },
        ];
        for other in others {
            assert_ne!(other.check(&key), check, "{other:?}");
            assert!(!other.same(&one), "{other:?}");
        }
        assert_ne!(one.check(&FlowKey { device: 6, ..key }), check);
        assert!(one.same(&one));
    }
}
