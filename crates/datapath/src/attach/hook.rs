//! A program on a device, and the side of the device that it belongs on.

use aya::programs::TcAttachType;
use flannel_common::abi::program::Program;

/// A program on a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hook {
    /// The program.
    pub program: Program,
    /// The device.
    pub ifindex: u32,
    /// Its name, by which aya attaches.
    pub ifname: String,
}

impl Hook {
    /// The side of the device the program belongs on.
    pub const fn direction(&self) -> TcAttachType {
        direction(self.program)
    }

    /// Returns true if the device is a pod's veth, of which there may be hundreds.
    pub(super) const fn is_on_pod(&self) -> bool {
        matches!(self.program, Program::FromPod | Program::ToPod)
    }
}

/// The side of a device a program belongs on.
pub const fn direction(program: Program) -> TcAttachType {
    match program {
        Program::FromPod | Program::FromUnderlay | Program::FromTunnel | Program::FromL3Tunnel => {
            TcAttachType::Ingress
        }
        Program::ToTunnel | Program::ToPod | Program::ToUnderlay | Program::ToL3Tunnel => {
            TcAttachType::Egress
        }
    }
}
