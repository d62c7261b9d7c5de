//! The numbers in packets of one direction of a TCP connection that bound those of the other: by
//! them a forged FIN or RST is recognised.
//!
//! Conntrack does not see replayed packets, so for these connections the agent has it no longer
//! check windows ([`crate::flow::connection`]), and the programs check the packets that close them.
//! A host sends nothing beyond the acknowledgement and the window it was given, and nothing older
//! than a window. Both ends ignore a FIN or RST outside of that, and only conntrack would end the
//! connection.
//!
//! Valid only while every packet of the flow passes a program: under the epoch of the mode word
//! ([`crate::abi::mode::ModeWord::epoch`]) in which it was learned.

use core::mem::size_of;

use crate::{flow::flow_key::Address, packet::inner::ParsedPacket};

/// Bytes after which a flow is refreshed whatever the time, so that sequence numbers do not wrap
/// between two packets that the kernel sees.
pub const REFRESH_BYTES: u32 = 1 << 30;

/// The least reach, in bytes: a window without a scale.
const LEAST_REACH: u32 = 1 << 16;

/// The largest shift of a window ([RFC 7323, section
/// 2.3](https://www.rfc-editor.org/rfc/rfc7323#section-2.3)). The shift of a connection of which it
/// is not known.
pub const SCALE_MAX: u8 = 14;

/// The numbers of one flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The last acknowledgement number, host byte order.
    pub acknowledged: u32,
    /// The largest window that was offered, in bytes.
    pub offered: u32,
    /// Sequence number of the packet from which the flow was last learned.
    pub sequence: u32,
    /// Shift of the windows in its packets.
    pub scale: u8,
    /// 1 once a packet was learned from. Else the numbers bound nothing: those of a flow that is
    /// only expected, or of an earlier connection.
    pub is_learned: u8,
    /// The epoch in which it was learned.
    pub epoch: u16,
}

impl Window {
    /// The numbers of a packet from which a flow is learned.
    #[inline(always)]
    pub const fn of<A: Address>(packet: &ParsedPacket<A>, scale: u8, epoch: u16) -> Self {
        let sequence = u32::from_be(packet.fingerprint.sequence);
        let empty = Self {
            acknowledged: 0,
            offered: 0,
            sequence,
            scale,
            is_learned: 1,
            epoch,
        };
        // The window of a packet with SYN has no scale.
        let of_packet = Self {
            scale: if packet.is_opening { 0 } else { scale },
            ..empty
        };
        Self {
            scale,
            ..of_packet.after(packet)
        }
    }

    /// The numbers after one more packet.
    #[inline(always)]
    #[must_use]
    pub const fn after<A: Address>(self, packet: &ParsedPacket<A>) -> Self {
        let offered = (u16::from_be(packet.window) as u32) << (self.scale & 0xf);
        Self {
            acknowledged: u32::from_be(packet.fingerprint.acknowledged),
            offered: if offered > self.offered {
                offered
            } else {
                self.offered
            },
            ..self
        }
    }

    /// Returns true if the other end may have sent a packet with this sequence number, network byte
    /// order.
    #[inline(always)]
    pub const fn reaches(&self, sequence: u32) -> bool {
        let reach = if self.offered > LEAST_REACH {
            self.offered
        } else {
            LEAST_REACH
        };
        are_within(u32::from_be(sequence), self.acknowledged, reach)
    }

    /// Returns true if the kernel has to see a packet with this sequence number, network byte
    /// order.
    #[inline(always)]
    pub const fn is_due(&self, sequence: u32) -> bool {
        // A packet that is sent again lies behind.
        !are_within(u32::from_be(sequence), self.sequence, REFRESH_BYTES)
    }
}

/// Returns true if two sequence numbers are at most `reach` apart, whichever is ahead.
#[inline(always)]
pub const fn are_within(one: u32, other: u32, reach: u32) -> bool {
    one.wrapping_sub(other).wrapping_add(reach) <= 2 * reach
}

const _: () = assert!(size_of::<Window>() == 16);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet::inner::Fingerprint;

    fn packet(sequence: u32, acknowledged: u32, window: u16) -> ParsedPacket<[u32; 1]> {
        let fingerprint = Fingerprint {
            sequence: sequence.to_be(),
            acknowledged: acknowledged.to_be(),
            ..Fingerprint::default()
        };
        ParsedPacket {
            fingerprint,
            window: window.to_be(),
            ..ParsedPacket::default()
        }
    }

    #[test]
    fn a_close_within_the_window_is_the_other_ends_and_one_outside_is_forged() {
        let window = Window::of(&packet(7, 1_000_000, 1000), 7, 1);
        assert_eq!(
            (window.acknowledged, window.offered, window.sequence),
            (1_000_000, 128_000, 7)
        );
        for (sequence, is_genuine) in [
            (1_000_000, true),
            (1_128_000, true),
            (1_128_001, false),
            (872_000, true),
            (871_999, false),
            (3_000_000_000, false),
        ] {
            assert_eq!(
                window.reaches(u32::to_be(sequence)),
                is_genuine,
                "{sequence}"
            );
        }
    }

    #[test]
    fn the_largest_window_counts_and_the_last_acknowledgement() {
        let mut window = Window::of(&packet(7, 1000, 4096), 5, 1);
        window = window.after(&packet(8, 2000, 0));
        assert_eq!((window.acknowledged, window.offered), (2000, 131_072));
        window = window.after(&packet(9, 3000, 8192));
        assert_eq!((window.acknowledged, window.offered), (3000, 262_144));
    }

    #[test]
    fn the_window_of_a_syn_ack_has_no_scale() {
        let answer = ParsedPacket {
            is_opening: true,
            ..packet(7, 1000, 65_160)
        };
        let window = Window::of(&answer, 7, 1);
        assert_eq!((window.offered, window.scale), (65_160, 7));
        assert_eq!(window.after(&packet(8, 1000, 502)).offered, 65_160);
        assert_eq!(window.after(&packet(8, 1000, 1024)).offered, 131_072);
    }

    #[test]
    fn a_flow_is_due_after_a_gibibyte_and_not_by_a_retransmission() {
        let window = Window::of(&packet(u32::MAX - 10, 0, 0), 0, 1);
        for (sequence, is_due) in [
            (u32::MAX - 10, false),
            (u32::MAX - 10_000, false),
            (REFRESH_BYTES - 11, false),
            (REFRESH_BYTES - 10, true),
            ((1 << 31) + (1 << 28), true),
        ] {
            assert_eq!(window.is_due(u32::to_be(sequence)), is_due, "{sequence}");
        }
    }

    proptest! {
        /// A host may send, whatever the numbers: from the acknowledgement to the end of the
        /// window, and a window back.
        #[test]
        fn nothing_a_host_may_send_is_called_forged(
            acknowledged: u32, raw: u16, scale in 0_u8..=SCALE_MAX, any: u32, back: bool,
        ) {
            let window = Window::of(&packet(0, acknowledged, raw), scale, 1);
            let distance = any.checked_rem(window.offered + 1).unwrap_or(any);
            let sequence = if back {
                acknowledged.wrapping_sub(distance)
            } else {
                acknowledged.wrapping_add(distance)
            };
            prop_assert!(window.reaches(sequence.to_be()));
        }
    }
}
