//! The six programs of the datapath and their numbers, which index the statistics and are append-only.

/// `tc_index` of a packet that `to_tunnel` encapsulated, until `to_underlay` clears it. The numbers from 0x8000 on
/// are the slots of mode `fast`.
pub const OWN_PACKET: u32 = 0x0f1a;

/// A BPF program. `to_tunnel`, `from_underlay` and `to_underlay` exist; the other three are numbered for
/// mode `fast`.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// Host side of a pod's veth, ingress.
    FromPod = 0,
    /// Tunnel device, egress: encapsulates.
    ToTunnel = 1,
    /// External interface, ingress: counts tunnel packets by what they are.
    FromUnderlay = 2,
    /// Tunnel device, ingress.
    FromTunnel = 3,
    /// Host side of a pod's veth, egress.
    ToPod = 4,
    /// External interface, egress: observes the kernel's own tunnel packets.
    ToUnderlay = 5,
}

impl Program {
    /// How many numbers are taken.
    pub const COUNT: u32 = 6;

    /// Every program, by number.
    pub const ALL: [Self; Self::COUNT as usize] =
        [Self::FromPod, Self::ToTunnel, Self::FromUnderlay, Self::FromTunnel, Self::ToPod, Self::ToUnderlay];

    /// The name of the program in the object, in pins and in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FromPod => "from_pod",
            Self::ToTunnel => "to_tunnel",
            Self::FromUnderlay => "from_underlay",
            Self::FromTunnel => "from_tunnel",
            Self::ToPod => "to_pod",
            Self::ToUnderlay => "to_underlay",
        }
    }
}
