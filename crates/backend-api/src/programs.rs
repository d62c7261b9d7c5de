//! The traffic that the programs serve, and which programs that takes. Pure.

use flannel_common::abi::program::Program;

/// The traffic that the programs serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramSet {
    /// The tunnel of this VNI, and in mode `fast` peers on our own link too.
    Tunnel(u32),
    /// Direct peers by the external interface, without a tunnel. Only in mode `fast`.
    Link,
    /// Direct peers by a tunnel device without Ethernet. Only in mode `fast`.
    L3Tunnel {
        /// True if peers may be reached by the external interface too.
        and_link: bool,
    },
}

impl ProgramSet {
    /// Returns true if the programs encapsulate, and check what they decapsulate.
    pub const fn has_tunnel(self) -> bool {
        matches!(self, Self::Tunnel(_))
    }

    /// Returns true if in mode `fast` there are programs on the external interface.
    pub const fn is_on_external(self) -> bool {
        match self {
            Self::Tunnel(_) | Self::Link => true,
            Self::L3Tunnel { and_link } => and_link,
        }
    }

    /// Returns the programs that serve it, whatever the mode.
    pub const fn programs(self) -> &'static [Program] {
        use Program::{
            FromL3Tunnel, FromPod, FromTunnel, FromUnderlay, ToL3Tunnel, ToPod, ToTunnel,
            ToUnderlay,
        };
        match self {
            Self::Tunnel(_) => &[
                FromPod,
                ToPod,
                FromUnderlay,
                ToUnderlay,
                FromTunnel,
                ToTunnel,
            ],
            Self::Link => &[FromPod, ToPod, FromUnderlay, ToUnderlay],
            Self::L3Tunnel { and_link: true } => &[
                FromPod,
                ToPod,
                FromUnderlay,
                ToUnderlay,
                FromL3Tunnel,
                ToL3Tunnel,
            ],
            Self::L3Tunnel { and_link: false } => &[FromPod, ToPod, FromL3Tunnel, ToL3Tunnel],
        }
    }

    /// Returns the tag that distinguishes tc filters of this agent from those of another agent on
    /// the same device: the VNI, or zero.
    pub const fn filter_tag(self) -> u32 {
        match self {
            Self::Tunnel(vni) => vni,
            Self::Link | Self::L3Tunnel { .. } => 0,
        }
    }
}
