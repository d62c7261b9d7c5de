//! Backends: ways of carrying packets between nodes. Each has a module, and `registry` a row for
//! it.
//!
//! The promise of all of them is in `flannel_backend_api`. Their work in the kernel and with other
//! processes, such as WireGuard's keys and IPsec's daemon, is in their modules too.

pub mod host_gw;
pub mod ipip;
pub mod ipsec;
mod registry;
pub mod udp;
pub mod unmanaged;
pub mod vxlan;
pub mod wireguard;

pub use self::{
    registry::{
        BackendProcess, CARRIER_PARTS, MARKS, WAY_NAMES, carried_way, carrier, carrying_device,
        is_tunnel, of, policy_keys, recorded_policies, secret_files,
    },
    unmanaged::Unmanaged,
};
