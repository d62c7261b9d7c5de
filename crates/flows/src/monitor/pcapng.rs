//! Packets as a capture file that tcpdump and Wireshark read: pcapng (draft-ietf-opsawg-pcapng),
//! little-endian, one section, one interface description for each device, times in nanoseconds.
//!
//! A packet is the inner frame. What became of it is in the packet's comment.

use std::{
    collections::HashMap,
    io::{self, Write},
    time::Duration,
};

use crate::monitor::{DeviceNames, Seen};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;

const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;

/// Times count units of 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Writes a capture file.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    snaplen: u32,
    /// The numbers of the devices described so far, by interface index.
    interfaces: HashMap<u32, u32>,
}

impl<W: Write> Writer<W> {
    /// Begins a file of packets of which at most `snaplen` bytes are kept.
    pub fn new(to: W, snaplen: u32) -> io::Result<Self> {
        let mut writer = Self {
            to,
            snaplen,
            interfaces: HashMap::new(),
        };
        let mut body = Body::default();
        body.word(BYTE_ORDER_MAGIC);
        // Version 1.0, and a length of the section that is not known.
        body.half(1);
        body.half(0);
        body.bytes(&u64::MAX.to_le_bytes());
        body.option(
            SHB_USERAPPL,
            concat!("flannel-agent ", env!("CARGO_PKG_VERSION")).as_bytes(),
        );
        body.option(OPT_END, &[]);
        writer.block(SECTION_HEADER, &body)?;
        Ok(writer)
    }

    /// Writes one packet, after its device if that is new.
    pub fn packet(
        &mut self,
        seen: &Seen<'_>,
        epoch: Duration,
        devices: &mut DeviceNames,
    ) -> io::Result<()> {
        let interface = self.interface(seen.ifindex(), devices)?;
        let time = u64::try_from(seen.time(epoch).as_nanos()).unwrap_or(u64::MAX);
        let frame = seen.frame();
        let mut body = Body::default();
        body.word(interface);
        // The upper half comes first.
        let [low, high] = [time & u64::from(u32::MAX), time >> 32].map(u64::to_le_bytes);
        body.bytes(&high[..4]);
        body.bytes(&low[..4]);
        body.word(length(frame));
        body.word(seen.frame_len());
        body.bytes(frame);
        body.pad();
        // Bits 0 and 1: 1 is inbound, 2 is outbound.
        body.option(
            EPB_FLAGS,
            &if seen.is_outbound() { 2_u32 } else { 1 }.to_le_bytes(),
        );
        body.option(OPT_COMMENT, comment(seen).as_bytes());
        body.option(OPT_END, &[]);
        self.block(ENHANCED_PACKET, &body)
    }

    /// Hands on what was written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// The number of a device in this file.
    fn interface(&mut self, ifindex: u32, devices: &mut DeviceNames) -> io::Result<u32> {
        if let Some(number) = self.interfaces.get(&ifindex) {
            return Ok(*number);
        }
        let mut body = Body::default();
        body.half(LINKTYPE_ETHERNET);
        body.half(0);
        body.word(self.snaplen);
        body.option(IF_NAME, devices.name(ifindex).as_bytes());
        body.option(IF_TSRESOL, &[NANOSECONDS]);
        body.option(OPT_END, &[]);
        self.block(INTERFACE_DESCRIPTION, &body)?;
        let number = u32::try_from(self.interfaces.len()).unwrap_or(u32::MAX);
        self.interfaces.insert(ifindex, number);
        Ok(number)
    }

    fn block(&mut self, kind: u32, body: &Body) -> io::Result<()> {
        let len = (12 + length(&body.0)).to_le_bytes();
        self.to
            .write_all(&[&kind.to_le_bytes()[..], &len, &body.0, &len].concat())
    }
}

/// The bytes between a block's two lengths.
#[derive(Debug, Default)]
struct Body(Vec<u8>);

impl Body {
    fn half(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    fn word(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Everything in a block begins at a multiple of four.
    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.half(code);
        self.half(u16::try_from(value.len()).unwrap_or(u16::MAX));
        self.bytes(value);
        self.pad();
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// Returns the packet's comment: program, reason and verdict, and the outer addresses of a tunnel
/// packet.
fn comment(seen: &Seen<'_>) -> String {
    let tunnel = seen
        .outer()
        .map_or_else(String::new, |outer| format!(", tunnel {outer}"));
    format!(
        "{} {}, {}{tunnel}",
        seen.program.name(),
        seen.reason.name(),
        seen.reason.verdict().name()
    )
}
