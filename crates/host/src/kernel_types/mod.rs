//! The offsets of struct members in the running kernel, from its type information (BTF). Pure
//! except for the file it reads. A crate that is small is optimised in every profile: each start of
//! an agent walks through all types.

mod btf;

use std::{
    fs::{self, File},
    io::{Read, Seek},
    os::unix::fs::MetadataExt as _,
    sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering},
    },
};

use flannel_common::abi::{
    kernel::KernelLayout,
    kernel_drop::{DropLayout, KernelDrop},
};

use btf::Btf;

/// The kernel's BTF.
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// The number of the conntrack extension that names a timeout policy; absent from kernels without
/// those.
const TIMEOUT_EXTENSION: &str = "NF_CT_EXT_TIMEOUT";

/// Offsets of `td_maxack`, `td_scale` and `flags` in `struct ip_ct_tcp_state`, which the programs
/// read as a whole.
const TCP_STATE: [Option<u32>; 3] = [Some(12), Some(16), Some(17)];

/// The network namespace of this thread.
const NETNS: &str = "/proc/thread-self/ns/net";

/// Returns true if the kernel shows its types to this process.
pub fn is_readable() -> bool {
    File::open(VMLINUX).is_ok()
}

/// The kernel has refused programs that use the offsets.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// The kernel stays the same, so its types are read once.
static LAYOUTS: LazyLock<Layouts> = LazyLock::new(|| {
    File::open(VMLINUX)
        .ok()
        .and_then(layouts_of)
        .unwrap_or(Layouts::UNKNOWN)
});

/// Returns the offsets that the programs use; those that are not found are zero.
pub fn layout() -> KernelLayout {
    if IS_REFUSED.load(Ordering::Relaxed) {
        KernelLayout::UNKNOWN
    } else {
        LAYOUTS.kernel
    }
}

/// Returns what the program needs that reports packets which the kernel drops, in this network
/// namespace. Unknown where the kernel does not say why it drops a packet (before Linux 5.18 it
/// does not name netfilter).
pub fn drop_layout() -> DropLayout {
    let netns = fs::metadata(NETNS)
        .ok()
        .and_then(|file| u32::try_from(file.ino()).ok());
    match netns {
        Some(netns) if LAYOUTS.drops.is_known() => DropLayout {
            netns,
            ..LAYOUTS.drops
        },
        _ => DropLayout::UNKNOWN,
    }
}

/// Lets [`layout`] be unknown from now on, because the kernel has refused programs that use it:
/// status must not promise what depends on it.
pub fn refuse() {
    IS_REFUSED.store(true, Ordering::Relaxed);
}

/// The offsets for both kinds of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layouts {
    kernel: KernelLayout,
    drops: DropLayout,
}

impl Layouts {
    const UNKNOWN: Self = Self {
        kernel: KernelLayout::UNKNOWN,
        drops: DropLayout::UNKNOWN,
    };
}

/// Members of structs, each with the name of its struct.
type Wanted = (&'static str, &'static str);

/// None if the types cannot be read.
fn layouts_of(btf: impl Read + Seek) -> Option<Layouts> {
    let members: Vec<Wanted> = KERNEL_MEMBERS.into_iter().chain(DROP_MEMBERS).collect();
    let reasons = KernelDrop::ALL.map(KernelDrop::kernel_name);
    let enumerators: Vec<&str> = reasons.into_iter().chain([TIMEOUT_EXTENSION]).collect();
    let (offsets, values) = Btf::open(btf)?.look_up(&members, &enumerators)?;
    let (of_kernel, of_drops) = offsets.split_first_chunk::<{ KERNEL_MEMBERS.len() }>()?;
    let (timeout_extension, reasons) = values.split_last()?;
    let drops = of_drops
        .try_into()
        .ok()
        .and_then(|offsets| drops_of(offsets, reasons));
    Some(Layouts {
        kernel: layout_of(*of_kernel, *timeout_extension).unwrap_or_default(),
        drops: drops.unwrap_or(DropLayout::UNKNOWN),
    })
}

const DROP_MEMBERS: [Wanted; 12] = [
    ("sk_buff", "head"),
    ("sk_buff", "network_header"),
    ("sk_buff", "protocol"),
    ("sk_buff", "len"),
    ("sk_buff", "dev"),
    ("sk_buff", "sk"),
    ("net_device", "ifindex"),
    ("net_device", "nd_net"),
    ("sock", "__sk_common"),
    ("sock_common", "skc_net"),
    ("net", "ns"),
    ("ns_common", "inum"),
];

/// None if something is missing, also for a kernel that does not name netfilter's drops.
fn drops_of(
    offsets: [Option<u32>; DROP_MEMBERS.len()],
    reasons: &[Option<u32>],
) -> Option<DropLayout> {
    let [
        head,
        network_header,
        protocol,
        len,
        device,
        socket,
        ifindex,
        device_net,
        common,
        net,
        ns,
        inode,
    ] = offsets;
    let mut codes = DropLayout::UNKNOWN.codes;
    for (reason, number) in KernelDrop::ALL.into_iter().zip(reasons) {
        if let Some(code) = number.and_then(|number| codes.get_mut(usize::try_from(number).ok()?)) {
            *code = reason as u8;
        }
    }
    codes
        .contains(&(KernelDrop::NetfilterDrop as u8))
        .then_some(())?;
    Some(DropLayout {
        head: head?,
        network_header: network_header?,
        protocol: protocol?,
        len: len?,
        device: device?,
        socket: socket?,
        ifindex: ifindex?,
        device_net: device_net?,
        socket_net: common? + net?,
        inode: ns? + inode?,
        netns: 0,
        reserved: 0,
        codes,
    })
}

const KERNEL_MEMBERS: [Wanted; 17] = [
    ("sk_buff", "_nfct"),
    ("sk_buff", "dev"),
    ("net_device", "nd_net"),
    ("net", "nf"),
    ("netns_nf", "hooks_ipv4"),
    ("netns_nf", "hooks_ipv6"),
    ("nf_hook_entries", "hooks"),
    ("nf_hook_ops", "priority"),
    ("nf_hook_ops", "hook_ops_type"),
    ("nf_conn", "ext"),
    ("nf_ct_ext", "offset"),
    ("task_struct", "stack"),
    ("nf_conn", "proto"),
    ("ip_ct_tcp", "seen"),
    ("ip_ct_tcp_state", "td_maxack"),
    ("ip_ct_tcp_state", "td_scale"),
    ("ip_ct_tcp_state", "flags"),
];

/// None for a kernel without conntrack.
fn layout_of(
    offsets: [Option<u32>; KERNEL_MEMBERS.len()],
    timeout_extension: Option<u32>,
) -> Option<KernelLayout> {
    let [
        nfct,
        device,
        net,
        nf,
        hooks_v4,
        hooks_v6,
        entries,
        priority,
        hook_kind,
        ext,
        ext_offset,
        stack,
        proto,
        seen,
        state @ ..,
    ] = offsets;
    let nfct = nfct?;
    let hooks = || {
        let (nf, device, net, entries, priority) = (nf?, device?, net?, entries?, priority?);
        let (hooks_v4, hooks_v6) = (nf + hooks_v4?, nf + hooks_v6?);
        let hook_kind = hook_kind.unwrap_or_default();
        let hooks = KernelLayout {
            device,
            net,
            hooks_v4,
            hooks_v6,
            entries,
            priority,
            hook_kind,
            ..KernelLayout::UNKNOWN
        };
        Some(KernelLayout { nfct, ..hooks })
    };
    let layout = hooks().unwrap_or(KernelLayout {
        nfct,
        ..KernelLayout::UNKNOWN
    });
    let tcp_states = proto
        .zip(seen)
        .filter(|_| state == TCP_STATE)
        .map_or(0, |(proto, seen)| proto + seen);
    let layout = KernelLayout {
        stack: stack.unwrap_or_default(),
        tcp_states,
        ..layout
    };
    let Some((extensions, extension_offsets)) = ext.zip(ext_offset) else {
        return Some(layout);
    };
    let timeout_extension = timeout_extension.unwrap_or_default();
    Some(KernelLayout {
        extensions,
        extension_offsets,
        timeout_extension,
        ..layout
    })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::{btf::tests::small, *};

    #[test]
    fn without_the_hooks_conntracks_own_word_is_read() {
        let kernel = KernelLayout {
            nfct: 8,
            ..KernelLayout::UNKNOWN
        };
        assert_eq!(
            layouts_of(Cursor::new(small())),
            Some(Layouts {
                kernel,
                ..Layouts::UNKNOWN
            })
        );
    }
}
