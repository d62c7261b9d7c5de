//! The helpers that the programs call, and which of their arguments are memory.
//!
//! Numbers and arguments are those of [include/uapi/linux/bpf.h, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/bpf.h) and of each helper's
//! `bpf_func_proto`, most of them in
//! [net/core/filter.c](https://elixir.bootlin.com/linux/v6.1/source/net/core/filter.c).

/// A helper of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Helper {
    pub(super) number: i32,
    pub(super) name: &'static str,
    pub(super) memory: &'static [Memory],
}

/// An argument that is the address of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) register: u8,
    pub(super) length: Length,
    pub(super) access: Access,
}

/// The number of bytes of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// It is in this register.
    Register(u8),
    /// It is always this number.
    Fixed(u32),
    /// The key of the map in r1.
    Key,
    /// The value of the map in r1.
    Value,
}

/// The direction of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The helper reads it, or reads and writes it: every byte must have been written.
    Reads,
    /// The helper writes all of it (`ARG_PTR_TO_UNINIT_MEM`), also where it fails.
    Writes,
}

/// The helper with this number.
pub(super) fn find(number: i32) -> Option<&'static Helper> {
    HELPERS.iter().find(|helper| helper.number == number)
}

const fn plain(number: i32, name: &'static str) -> Helper {
    Helper {
        number,
        name,
        memory: &[],
    }
}

const fn helper(number: i32, name: &'static str, memory: &'static [Memory]) -> Helper {
    Helper {
        number,
        name,
        memory,
    }
}

const fn reads(register: u8, length: Length) -> Memory {
    Memory {
        register,
        length,
        access: Access::Reads,
    }
}

const fn writes(register: u8, length: Length) -> Memory {
    Memory {
        register,
        length,
        access: Access::Writes,
    }
}

const HELPERS: [Helper; 32] = [
    helper(1, "bpf_map_lookup_elem", &[reads(2, Length::Key)]),
    helper(
        2,
        "bpf_map_update_elem",
        &[reads(2, Length::Key), reads(3, Length::Value)],
    ),
    helper(3, "bpf_map_delete_elem", &[reads(2, Length::Key)]),
    plain(5, "bpf_ktime_get_ns"),
    plain(7, "bpf_get_prandom_u32"),
    plain(8, "bpf_get_smp_processor_id"),
    helper(9, "bpf_skb_store_bytes", &[reads(3, Length::Register(4))]),
    plain(11, "bpf_l4_csum_replace"),
    helper(
        21,
        "bpf_skb_set_tunnel_key",
        &[reads(2, Length::Register(3))],
    ),
    plain(23, "bpf_redirect"),
    helper(26, "bpf_skb_load_bytes", &[writes(3, Length::Register(4))]),
    helper(
        28,
        "bpf_csum_diff",
        &[reads(1, Length::Register(2)), reads(3, Length::Register(4))],
    ),
    plain(32, "bpf_skb_change_type"),
    plain(35, "bpf_get_current_task"),
    plain(34, "bpf_get_hash_recalc"),
    plain(39, "bpf_skb_pull_data"),
    plain(40, "bpf_csum_update"),
    plain(43, "bpf_skb_change_head"),
    plain(50, "bpf_skb_adjust_room"),
    helper(69, "bpf_fib_lookup", &[reads(2, Length::Register(3))]),
    helper(
        113,
        "bpf_probe_read_kernel",
        &[writes(1, Length::Register(2))],
    ),
    helper(130, "bpf_ringbuf_output", &[reads(2, Length::Register(3))]),
    plain(131, "bpf_ringbuf_reserve"),
    plain(132, "bpf_ringbuf_submit"),
    plain(133, "bpf_ringbuf_discard"),
    plain(135, "bpf_csum_level"),
    helper(152, "bpf_redirect_neigh", &[reads(2, Length::Register(3))]),
    plain(155, "bpf_redirect_peer"),
    plain(160, "bpf_ktime_get_coarse_ns"),
    helper(163, "bpf_check_mtu", &[reads(3, Length::Fixed(4))]),
    plain(188, "bpf_xdp_get_buff_len"),
    helper(189, "bpf_xdp_load_bytes", &[writes(3, Length::Register(4))]),
];
