//! The address families that the programs handle. The agent sets them before it loads the object.

use core::mem::size_of;

/// 1 for a family that is on, 0 for one that is off. The kernel neither verifies nor keeps the code
/// of a family that is off: half of each program. Packets of that family count as packets of
/// another protocol.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    /// IPv4.
    pub v4: u32,
    /// IPv6.
    pub v6: u32,
}

impl Families {
    /// Both families.
    pub const BOTH: Self = Self { v4: 1, v6: 1 };
}

const _: () = assert!(size_of::<Families>() == 8);
