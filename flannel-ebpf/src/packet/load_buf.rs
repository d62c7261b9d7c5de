//! Reading and writing the packet's bytes. Headers that every packet is read for are read in place,
//! and by helper (`bpf_skb_load_bytes`) where they are not linear: the helper would cost as much as
//! the look-up of a flow.
//!
//! Headers are written in place too. The kernel then unshares a packet that has another owner (TCP,
//! until it is acknowledged; tcpdump) before the program runs, or drops it if memory is short
//! (`bpf_unclone_prologue()` in [net/core/filter.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/filter.c)). This costs a call for
//! packets that TCP sends and nothing for most others, which is less than the helper
//! (`bpf_skb_store_bytes`).

use core::{arch::asm, mem::MaybeUninit};

use aya_ebpf::{
    helpers::generated::{bpf_skb_load_bytes, bpf_skb_pull_data, bpf_skb_store_bytes},
    macros::map,
    maps::PerCpuArray,
};
use flannel_common::{
    abi::{node::FamilyConfig, reason::Reason},
    packet::ETH_LEN,
    packet::{
        inner::{Frame, InnerHeader},
        ip::FragmentHeader,
        outer::TunnelHeaders,
    },
};

use super::{family::Family, skb::Skb};

/// Private to the programs: not pinned.
#[map]
static LOAD_BUFS: PerCpuArray<Space> = PerCpuArray::with_max_entries(LoadBuf::COUNT, 0);

/// A buffer for bytes that are read by helper. Not on the stack: that is small, and the verifier
/// takes words there only at multiples of their size, while addresses in headers are at others.
/// Loading into a buffer again overwrites it.
#[derive(Clone, Copy)]
pub(crate) enum LoadBuf {
    /// Outer headers, or the bytes that follow them where no inner frame does.
    Outer,
    /// An extension header, a second tag, or the bytes behind them.
    Extension,
    /// A transport header, or a part of it.
    Transport,
    /// A VXLAN header.
    Vxlan,
    /// An inner Ethernet or IP header.
    Inner,
}

impl LoadBuf {
    /// Number of buffers.
    pub(crate) const COUNT: u32 = Self::Inner as u32 + 1;

    /// Returns this CPU's buffer for a `T`, which consists of bytes.
    #[inline(always)]
    pub(crate) fn take<T: Copy>(self) -> Option<&'static mut MaybeUninit<T>> {
        const { assert!(size_of::<T>() <= size_of::<Space>() && align_of::<T>() == 1) };
        let at = LOAD_BUFS.get_ptr_mut(self as u32)?;
        // SAFETY: the look-up gave this CPU's own element, which is large enough, and programs of
        // one CPU do not interrupt each other.
        Some(unsafe { &mut *at.cast() })
    }
}

/// Memory of a buffer.
pub(crate) type Space = [u64; 12];

/// The headers behind the outer IPv6 header of a fragment.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Fragment {
    header: FragmentHeader,
    tunnel: TunnelHeaders,
}

impl Skb {
    /// Loads a `T`, which consists of bytes, by helper; none if the packet is too short.
    #[inline(always)]
    pub(crate) fn load<T: Copy>(&self, offset: usize, buf: LoadBuf) -> Option<&'static T> {
        let buf = buf.take::<T>()?;
        let (to, len) = (buf.as_mut_ptr().cast(), size_of::<T>() as u32);
        // SAFETY: there is room for a `T`; the helper fills all of it or fails.
        let failed = unsafe { bpf_skb_load_bytes(self.raw().cast(), offset as u32, to, len) };
        if failed == 0 {
            // SAFETY: filled, and any bytes are a value.
            Some(unsafe { buf.assume_init_ref() })
        } else {
            None
        }
    }

    /// The same in place. Bytes that are not linear are made so first, as the kernel's receivers
    /// would. Read it before the packet is changed; the verifier enforces that. `offset` is a
    /// constant.
    #[inline(always)]
    pub(crate) fn view<T: Copy>(&self, offset: usize) -> Option<&T> {
        self.view_linear(offset).or_else(|| {
            // SAFETY: the helper takes the context. It fails where the packet is shorter, and then
            // so does what follows.
            unsafe { bpf_skb_pull_data(self.raw(), (offset + size_of::<T>()) as u32) };
            self.view_linear(offset)
        })
    }

    /// The same of bytes that are linear already. The sender of a packet decides which ones are, so
    /// their absence means nothing.
    #[inline(always)]
    pub(crate) fn view_linear<T: Copy>(&self, offset: usize) -> Option<&T> {
        const { assert!(align_of::<T>() == 1) };
        let at = self.piece(offset, size_of::<T>())?;
        // SAFETY: the packet has the bytes of a `T` at `at`, any bytes are a valid `T`, and it
        // needs no alignment.
        Some(unsafe { &*at.cast() })
    }

    /// Returns the address of `len` bytes of the packet, if they are linear.
    #[inline(always)]
    fn piece(&self, offset: usize, len: usize) -> Option<*const u8> {
        let at = self.data() as usize + offset;
        if at + len <= self.data_end() as usize {
            Some(at as *const u8)
        } else {
            None
        }
    }

    /// Loads a frame that starts at `offset` up to the end of a TCP header, or of a UDP header if
    /// the packet is shorter. Bytes behind that are of an earlier packet.
    #[inline(always)]
    pub(crate) fn load_frame<H>(&self, offset: usize, frame: &mut Frame<H>) -> Result<(), Reason> {
        if self.len() as usize >= offset + Frame::<H>::LEN {
            self.load_start_of(offset, frame, Frame::<H>::LEN)
        } else {
            self.load_start_of(offset, frame, Frame::<H>::MIN_LEN)
        }
    }

    /// The same of a packet of a device without Ethernet. In the frame it gets a header with
    /// addresses of zero.
    #[inline(always)]
    pub(crate) fn load_packet<H: InnerHeader>(&self, frame: &mut Frame<H>) -> Result<(), Reason> {
        frame.clear_link_header();
        if self.len() as usize >= Frame::<H>::LEN - ETH_LEN {
            self.load_start_of_packet(frame, Frame::<H>::LEN - ETH_LEN)
        } else {
            self.load_start_of_packet(frame, Frame::<H>::MIN_LEN - ETH_LEN)
        }
    }

    #[inline(always)]
    fn load_start_of<H>(
        &self,
        offset: usize,
        frame: &mut Frame<H>,
        len: usize,
    ) -> Result<(), Reason> {
        if let Some(at) = self.piece(offset, len) {
            copy(at, frame, len);
            return Ok(());
        }
        self.load_by_helper(offset, frame, Frame::<H>::PAD, len)
    }

    #[inline(always)]
    fn load_start_of_packet<H>(&self, frame: &mut Frame<H>, len: usize) -> Result<(), Reason> {
        if let Some(at) = self.piece(0, len) {
            copy_words(at, frame, Frame::<H>::PAD + ETH_LEN, len);
            return Ok(());
        }
        self.load_by_helper(0, frame, Frame::<H>::PAD + ETH_LEN, len)
    }

    /// Loads bytes of the packet to offset `at` in `frame`, which has room for them.
    #[inline(always)]
    fn load_by_helper<H>(
        &self,
        offset: usize,
        frame: &mut Frame<H>,
        at: usize,
        len: usize,
    ) -> Result<(), Reason> {
        let to = (&raw mut *frame).cast::<u8>().wrapping_add(at).cast();
        // SAFETY: the caller has shown that there is room.
        let failed =
            unsafe { bpf_skb_load_bytes(self.raw().cast(), offset as u32, to, len as u32) };
        if failed == 0 {
            Ok(())
        } else {
            Err(Reason::Malformed)
        }
    }

    /// Overwrites bytes of the packet; returns false if the kernel refused. `T` consists of an even
    /// number of bytes; `offset` is a constant.
    #[inline(always)]
    pub(crate) fn store<T>(&self, offset: usize, bytes: &T) -> bool {
        const { assert!(size_of::<T>().is_multiple_of(2)) };
        let from = (&raw const *bytes).cast::<u8>();
        let Some(to) = self.piece(offset, size_of::<T>()) else {
            let len = size_of::<T>() as u32;
            // SAFETY: the helper takes the context, and `len` live bytes.
            return unsafe {
                bpf_skb_store_bytes(self.raw(), offset as u32, from.cast(), len, 0) == 0
            };
        };
        for at in (0..size_of::<T>() - 3).step_by(4) {
            move_word::<u32>(from.wrapping_add(at), to.wrapping_add(at));
        }
        if !size_of::<T>().is_multiple_of(4) {
            let last = size_of::<T>() - 2;
            move_word::<u16>(from.wrapping_add(last), to.wrapping_add(last));
        }
        true
    }

    /// Returns the headers behind an IPv6 fragment header, if they are UDP to our port.
    #[inline(always)]
    pub(crate) fn behind_fragment_header<F: Family>(
        &self,
        family: &FamilyConfig,
    ) -> Result<&'static TunnelHeaders, Reason> {
        let at = ETH_LEN + size_of::<F>();
        let Fragment { header, tunnel } =
            self.load(at, LoadBuf::Extension).ok_or(Reason::NotTunnel)?;
        if header.starts_udp() && tunnel.goes_to_port(family) {
            Ok(tunnel)
        } else {
            Err(Reason::NotTunnel)
        }
    }
}

/// Copies a word of a header into the packet.
#[inline(always)]
fn move_word<W: Copy>(from: *const u8, to: *const u8) {
    // SAFETY: the caller has shown that the bytes are the header's.
    let word = unsafe { from.cast::<W>().read_unaligned() };
    // SAFETY: the caller has shown that the bytes are the packet's.
    unsafe { to.cast_mut().cast::<W>().write_unaligned(word) };
}

/// Bytes of the words in which headers are copied.
const WORD: usize = size_of::<u32>();

/// Copies a word of the packet in one instruction. The compiler would copy unaligned bytes one by
/// one, and a later read of them as a word would stall until all are stored.
macro_rules! copy_word {
    ($word:ty, $load:literal, $from:expr, $to:expr) => {{
        let word: $word;
        // SAFETY: the caller has shown that the bytes are the packet's. Where the programs run a
        // load needs no alignment.
        unsafe { asm!($load, out(reg) word, in(reg) $from, options(pure, readonly, nostack)) };
        // SAFETY: the caller gave room, aligned for this word.
        unsafe { $to.write(word) };
    }};
}

/// Copies the first `len` bytes of a frame. Its padding makes the third byte the first of an
/// aligned word.
#[inline(always)]
fn copy<H>(from: *const u8, frame: &mut Frame<H>, len: usize) {
    const FIRST: usize = size_of::<u16>();
    const {
        assert!(
            Frame::<H>::PAD == FIRST
                && Frame::<H>::LEN % WORD == FIRST
                && Frame::<H>::MIN_LEN % WORD == FIRST
        );
    };
    let to = (&raw mut *frame).cast::<u16>();
    copy_word!(u16, "{0} = *(u16 *)({1} + 0)", from, to.wrapping_add(1));
    copy_words(
        from.wrapping_add(FIRST),
        frame,
        Frame::<H>::PAD + FIRST,
        len - FIRST,
    );
}

/// Copies `len` bytes to offset `at` in `frame`, both a multiple of a word.
#[inline(always)]
fn copy_words<H>(from: *const u8, frame: &mut Frame<H>, at: usize, len: usize) {
    let to = (&raw mut *frame).cast::<u32>().wrapping_add(at / WORD);
    for word in 0..len / WORD {
        copy_word!(
            u32,
            "{0} = *(u32 *)({1} + 0)",
            from.wrapping_add(word * WORD),
            to.wrapping_add(word)
        );
    }
}
