//! Netfilter's hooks of a network namespace, read from kernel memory.

use super::{layout::layout, scratch::FlowMaps};
use crate::{kernel_memory::read, packet::skb::Skb};

/// Bytes of `struct nf_hook_entry` ([include/linux/netfilter.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/linux/netfilter.h)), and of a pointer.
const ENTRY_LEN: u64 = 16;
const POINTER_LEN: u64 = 8;
/// `NF_HOOK_OP_BPF` of `enum nf_hook_ops_type` ([include/linux/netfilter.h, Linux
/// 6.4](https://elixir.bootlin.com/linux/v6.4/source/include/linux/netfilter.h)).
const BPF: u8 = 2;
/// Functions of a hook that are looked at for programs.
const SEARCHED: u64 = 64;

/// The hooks of a family.
pub(crate) struct Hooks {
    /// Address of the pointers to the functions, one for each hook.
    at: u64,
}

/// The functions at a hook, in order of priority; behind them follow pointers to their
/// registrations.
pub(super) struct Functions {
    pub(super) count: u64,
    registered: u64,
}

impl Hooks {
    /// In the packet's network namespace; `None` where the kernel's layout is not known.
    #[inline(always)]
    pub(crate) fn of<F: FlowMaps>(skb: &Skb) -> Option<Self> {
        let layout = layout();
        if layout.device == 0 {
            return None;
        }
        let device: u64 = read(skb.raw() as u64 + u64::from(layout.device))?;
        let net: u64 = read(device + u64::from(layout.net))?;
        Some(Self {
            at: net + u64::from(F::hooks(&layout)),
        })
    }

    /// The functions at a hook.
    #[inline(always)]
    pub(super) fn functions(&self, hook: u32) -> Option<Functions> {
        let entries: u64 = read(self.at + u64::from(hook) * POINTER_LEN)?;
        if entries == 0 {
            return Some(Functions {
                count: 0,
                registered: 0,
            });
        }
        let count = u64::from(read::<u16>(entries)?);
        Some(Functions {
            count,
            registered: entries + u64::from(layout().entries) + count * ENTRY_LEN,
        })
    }

    /// Returns true if a BPF program is at a hook; `None` if there are more functions than are
    /// looked at.
    #[inline(always)]
    pub(crate) fn has_program(&self, hook: u32) -> Option<bool> {
        let kind = layout().hook_kind;
        if kind == 0 {
            return Some(false);
        }
        let functions = self.functions(hook)?;
        for place in 0..SEARCHED {
            if place >= functions.count {
                return Some(false);
            }
            if functions.field::<u8>(place, kind)? == BPF {
                return Some(true);
            }
        }
        if functions.count > SEARCHED {
            None
        } else {
            Some(false)
        }
    }
}

impl Functions {
    /// The priority of one.
    #[inline(always)]
    pub(super) fn priority(&self, place: u64) -> Option<i32> {
        self.field(place, layout().priority)
    }

    /// A field of the registration of one.
    #[inline(always)]
    fn field<T>(&self, place: u64, offset: u32) -> Option<T> {
        let one: u64 = read(self.registered + place * POINTER_LEN)?;
        read(one + u64::from(offset))
    }
}
