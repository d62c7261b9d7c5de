//! The programs of the datapath and their numbers, which index the statistics and are append-only.

/// `tc_index` of a packet that one of our programs sent on by the external interface, until
/// `to_underlay` clears it. The numbers from 0x8000 on are the slots of mode `fast`.
pub const SELF_SENT: u32 = 0x0f1a;

/// It hangs behind the kernel's NAPI polls, sees no packet and counts nothing in the statistics.
pub const COUNT_POLLS: &str = "count_polls";

/// It hangs at the kernel's tracepoint for dropped packets while flows are observed, and counts
/// nothing in the statistics.
pub const REPORT_DROPS: &str = "report_drops";

/// The guard's program at the driver, by XDP. It counts its drops with those of
/// [`Program::FromUnderlay`].
pub const EARLY_GUARD: &str = "early_guard";

/// Attached nowhere: the agent runs it once, to ask the kernel for what helpers may refuse. It
/// returns [`ROOM_MADE`], [`ROOM_TAKEN`] and [`ON_TASK_STACK`].
pub const PROBE_ROOM: &str = "probe_room";

/// Attached nowhere: the agent runs it to find BPF programs at netfilter's hooks. It returns a set
/// of [`netfilter_program_at`] and [`too_many_functions_at`].
pub const FIND_JUDGES: &str = "find_judges";

/// Netfilter's hooks of a family (`enum nf_inet_hooks` in [include/uapi/linux/netfilter.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/netfilter.h)).
pub const HOOKS: u32 = 5;

/// A BPF program is at this hook.
pub const fn netfilter_program_at(hook: u32) -> u32 {
    1 << hook
}

/// More functions are at this hook than are looked at.
pub const fn too_many_functions_at(hook: u32) -> u32 {
    1 << (16 + hook)
}

/// The kernel made room for outer headers.
pub const ROOM_MADE: u32 = 1 << 0;
/// It took that room away again.
pub const ROOM_TAKEN: u32 = 1 << 1;
/// The program, which the agent ran, had the stack of the agent's task.
pub const ON_TASK_STACK: u32 = 1 << 2;

/// A BPF program at a TC hook.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// Host side of a pod's veth, ingress: notes packets, and sends those of known flows on.
    FromPod = 0,
    /// Tunnel device, egress: learns, and encapsulates.
    ToTunnel = 1,
    /// External interface, ingress: says what tunnel packets are, and puts those of known flows
    /// into their pod.
    FromUnderlay = 2,
    /// Tunnel device, ingress: notes packets.
    FromTunnel = 3,
    /// Host side of a pod's veth, egress: learns.
    ToPod = 4,
    /// External interface, egress: observes the kernel's own tunnel packets.
    ToUnderlay = 5,
    /// Tunnel device without Ethernet, ingress: puts packets of known flows into their pod, and
    /// records others.
    FromL3Tunnel = 6,
    /// Tunnel device without Ethernet, egress: learns.
    ToL3Tunnel = 7,
}

impl Program {
    /// Numbers in use.
    pub const COUNT: u32 = 8;

    /// Every program, by number.
    pub const ALL: [Self; Self::COUNT as usize] = [
        Self::FromPod,
        Self::ToTunnel,
        Self::FromUnderlay,
        Self::FromTunnel,
        Self::ToPod,
        Self::ToUnderlay,
        Self::FromL3Tunnel,
        Self::ToL3Tunnel,
    ];

    /// The program with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// The name of the program in the object, in pins and in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FromPod => "from_pod",
            Self::ToTunnel => "to_tunnel",
            Self::FromUnderlay => "from_underlay",
            Self::FromTunnel => "from_tunnel",
            Self::ToPod => "to_pod",
            Self::ToUnderlay => "to_underlay",
            Self::FromL3Tunnel => "from_l3_tunnel",
            Self::ToL3Tunnel => "to_l3_tunnel",
        }
    }
}
