//! WireGuard: the key of this node, and the control of a device, be it the kernel's or that of a
//! process.
//!
//! Kernels before 5.6, and those built without the module, have no WireGuard. A process with a TUN
//! device then does its work: `wireguard-go` or `boringtun-cli`, which speak the [cross-platform
//! protocol](https://www.wireguard.com/xplatform/) on a socket. The process does not stay a child
//! of the agent: it outlives the agent.

mod carrier;
mod control;
mod desired;
mod device;
mod error;
mod key_file;
mod peers;
mod shared;
mod uapi;
mod userspace;

pub(crate) use self::{
    carrier::{CarryingWireguard, PART},
    key_file::KEY_FILE,
};
pub use self::{
    control::Control,
    desired::{DEVICES, WAY, Wireguard},
    device::WireguardSpec,
    error::WireguardError,
    key_file::{BadKeyFile, WireguardKeys},
    peers::WireguardDevices,
    shared::{SharedWireguardPeers, has_session},
    uapi::has_process,
    userspace::start,
};
