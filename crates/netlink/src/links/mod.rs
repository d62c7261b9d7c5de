//! Devices: as the kernel reports them, and those that the agent makes.

pub(crate) mod device_name;
pub(crate) mod ethtool;
pub(crate) mod ipip;
pub(crate) mod link;
pub(crate) mod veth;
pub(crate) mod vxlan;
