//! One event: a program's outcome for one packet, and the packet's first bytes.

use std::time::Duration;

use aya::programs::TcAttachType;
use flannel_common::abi::{monitor::Event, program::Program, reason::Reason};
use flannel_datapath::attach::direction;

use crate::monitor::packet::{Packet, PacketAddresses};

/// An event with its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The program that saw the packet.
    pub program: Program,
    /// The reason of its verdict.
    pub reason: Reason,
    event: Event,
    bytes: &'a [u8],
    snaplen: usize,
}

impl<'a> Seen<'a> {
    /// Decodes an item of the ring buffer. Returns `None` if it is not an event of this build's
    /// programs. At most `snaplen` bytes of the packet are shown.
    pub fn read(item: &'a [u8], snaplen: usize) -> Option<Self> {
        let event = Event::from_bytes(item)?;
        let bytes = item[Event::LEN..].get(..usize::from(event.captured))?;
        Some(Self {
            program: Program::from_number(event.program.into())?,
            reason: Reason::from_number(event.reason.into())?,
            event,
            bytes,
            snaplen,
        })
    }

    /// When, since 1970, given when the programs' clock was zero.
    pub const fn time(&self, epoch: Duration) -> Duration {
        epoch.saturating_add(Duration::from_nanos(self.event.time_ns))
    }

    /// The device whose hook the program is at, by interface index.
    pub const fn ifindex(&self) -> u32 {
        self.event.ifindex
    }

    /// Returns true if the packet was leaving by the device.
    pub fn is_outbound(&self) -> bool {
        direction(self.program) == TcAttachType::Egress
    }

    /// Payload of one segment, if the packet is yet to be cut.
    pub const fn gso_size(&self) -> Option<u32> {
        if self.event.gso_size == 0 {
            None
        } else {
            Some(self.event.gso_size)
        }
    }

    /// Length of the inner frame.
    pub fn frame_len(&self) -> u32 {
        self.event.len.saturating_sub(self.event.inner_at.into())
    }

    /// The first bytes of the inner frame, as many as were asked for.
    pub fn frame(&self) -> &'a [u8] {
        let frame = self.captured_frame();
        &frame[..frame.len().min(self.snaplen)]
    }

    /// Returns the captured part of the inner frame, decoded.
    pub fn packet(&self) -> Packet<'a> {
        Packet::read(self.captured_frame(), self.frame_len())
    }

    /// The outer addresses, if there are outer headers.
    pub fn outer(&self) -> Option<PacketAddresses> {
        if self.event.inner_at == 0 {
            None
        } else {
            Packet::read(self.bytes, self.event.len).addresses()
        }
    }

    fn captured_frame(&self) -> &'a [u8] {
        self.bytes
            .get(usize::from(self.event.inner_at)..)
            .unwrap_or_default()
    }
}
