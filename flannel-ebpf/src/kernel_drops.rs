//! Reports packets of pods that the kernel drops, such as by a rule of netfilter, to a monitor that
//! has attached the program to the tracepoint `kfree_skb` (its third argument is the reason since
//! Linux 5.17, `trace_kfree_skb()` in [include/trace/events/skb.h, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/trace/events/skb.h)).
//!
//! The tracepoint is the whole machine's: packets of other network namespaces are left out, and
//! those without an address of the pod network.

use core::ptr::read_volatile;

use aya_ebpf::{
    helpers::{
        bpf_probe_read_kernel_buf,
        generated::{bpf_ktime_get_ns, bpf_ringbuf_output},
    },
    programs::RawTracePointContext,
};
use flannel_common::{
    abi::{
        kernel_drop::{CODES, DropLayout},
        maps::ONLY,
        monitor::{Event, HEADERS_LEN, KERNEL},
    },
    packet::ETH_LEN,
    packet::ip::{Ipv4Header, Ipv6Header},
};

use crate::{
    kernel_memory::read,
    maps::{CONFIG, EVENTS},
    monitor,
    packet::family::Family,
};

/// The agent sets it when it loads the object.
#[unsafe(no_mangle)]
static DROPS: DropLayout = DropLayout::UNKNOWN;

/// Reads one field of [`DROPS`].
macro_rules! known {
    ($field:ident) => {
        // SAFETY: a static is valid for reads. Volatile, because the agent changes it before the
        // object is loaded.
        unsafe { read_volatile(&raw const DROPS.$field) }
    };
}

const IP_BYTES: usize = HEADERS_LEN as usize - ETH_LEN;

/// Bytes in front of the link header, with which the IP header is at a multiple of eight.
const GAP: usize = 2;
/// Bytes of [`Report`] that are sent.
const REPORT_LEN: usize = size_of::<Event>() + GAP + HEADERS_LEN as usize;

/// An event, and behind it the packet's headers. They are on the stack: this program may interrupt
/// another that is about to report.
#[repr(C)]
struct Report {
    event: Event,
    gap: [u8; GAP],
    link: [u8; ETH_LEN],
    ip: [u8; IP_BYTES],
    /// So that the compiler copies no byte that was not written.
    tail: [u8; size_of::<u64>() - REPORT_LEN % size_of::<u64>()],
}

/// A packet in the kernel's memory.
struct Dropped {
    skb: u64,
    device: u64,
    ifindex: u32,
}

/// Reports a dropped packet, if it is one of the node's pods and a monitor wants it.
#[inline(always)]
pub(crate) fn report(ctx: &RawTracePointContext) {
    let code = code_of(ctx.arg::<u32>(2));
    // SAFETY: the helper takes nothing and returns a number.
    let now = unsafe { bpf_ktime_get_ns() };
    let Some(settings) = monitor::settings(now) else {
        return;
    };
    if code == 0 {
        return;
    }
    let Some(packet) = Dropped::of_node(ctx.arg::<u64>(0)) else {
        return;
    };
    let Some(report) = packet.read(code, now) else {
        return;
    };
    let Some(due) = settings.pace.next_due(now) else {
        monitor::miss(|missed| &mut missed.limited);
        return;
    };
    settings.pace.due_ns = due;
    send(&report);
}

/// The number of the reason, zero for one that is not reported.
#[inline(always)]
fn code_of(reason: u32) -> u8 {
    let reason = reason as usize;
    if reason >= CODES {
        return 0;
    }
    let code = (&raw const DROPS.codes).cast::<u8>().wrapping_add(reason);
    // SAFETY: as for the other fields, and the number is within the array.
    unsafe { read_volatile(code) }
}

impl Dropped {
    /// The packet, if it is in the node's network namespace.
    #[inline(always)]
    fn of_node(skb: u64) -> Option<Self> {
        let device: u64 = read(skb + u64::from(known!(device)))?;
        let (net, ifindex): (u64, u32) = if device == 0 {
            // A packet of a process of the host has no device yet.
            let socket: u64 = read(skb + u64::from(known!(socket)))?;
            (read(socket + u64::from(known!(socket_net)))?, 0)
        } else {
            (
                read(device + u64::from(known!(device_net)))?,
                read(device + u64::from(known!(ifindex)))?,
            )
        };
        let inode: u32 = read(net + u64::from(known!(inode)))?;
        (inode == known!(netns)).then_some(Self {
            skb,
            device,
            ifindex,
        })
    }

    /// The report of it, if one of its addresses is a pod's.
    #[inline(always)]
    fn read(&self, code: u8, now: u64) -> Option<Report> {
        let head: u64 = read(self.skb + u64::from(known!(head)))?;
        let at: u16 = read(self.skb + u64::from(known!(network_header)))?;
        let protocol: u16 = read(self.skb + u64::from(known!(protocol)))?;
        let len: u32 = read(self.skb + u64::from(known!(len)))?;
        let mut report = Report {
            event: Event {
                time_ns: now,
                ifindex: self.ifindex,
                len: len + ETH_LEN as u32,
                gso_size: 0,
                inner_at: GAP as u16,
                captured: GAP as u16 + HEADERS_LEN as u16,
                program: KERNEL,
                reason: code,
                is_inbound: 0,
                reserved: [0; 5],
            },
            gap: [0; GAP],
            link: [0; ETH_LEN],
            ip: [0; IP_BYTES],
            tail: [0; _],
        };
        report.link[ETH_LEN - 2..].copy_from_slice(&protocol.to_ne_bytes());
        // SAFETY: the helper reads kernel memory and fails where there is none.
        unsafe { bpf_probe_read_kernel_buf((head + u64::from(at)) as *const u8, &mut report.ip) }
            .ok()?;
        let is_of_pod = match u32::from(protocol) {
            Ipv4Header::PROTOCOL => self.is_of_pod::<Ipv4Header>(&mut report),
            Ipv6Header::PROTOCOL => self.is_of_pod::<Ipv6Header>(&mut report),
            _ => false,
        };
        is_of_pod.then_some(report)
    }

    /// Returns true if an address of the packet is in the pod network, and notes where it came in.
    #[inline(always)]
    fn is_of_pod<F: Family>(&self, report: &mut Report) -> bool {
        let Some(config) = CONFIG.get(ONLY) else {
            return false;
        };
        let family = F::config(config);
        let from_outside = [family.tunnel_ifindex, family.underlay_ifindex];
        report.event.is_inbound =
            u8::from(self.device != 0 && from_outside.contains(&self.ifindex));
        // SAFETY: any bytes are a valid header, and there are enough of them.
        let ip = unsafe { &*report.ip.as_ptr().cast::<F>() };
        ip.source_subnet(family).is_some() || ip.destination_subnet(family).is_some()
    }
}

/// Writes the event to the ring buffer, without a wake-up: the monitor polls.
#[inline(always)]
fn send(report: &Report) {
    let data = (&raw const *report).cast_mut().cast();
    let events = (&raw const EVENTS).cast_mut().cast();
    // SAFETY: the first `REPORT_LEN` bytes of the report are those that were just written.
    let failed = unsafe { bpf_ringbuf_output(events, data, REPORT_LEN as u64, monitor::NO_WAKEUP) };
    if failed != 0 {
        monitor::miss(|missed| &mut missed.lost);
    }
}
