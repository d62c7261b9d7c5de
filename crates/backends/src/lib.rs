//! Backends: ways of carrying packets between nodes. Each has a module, and `registry` a row for
//! it.
//!
//! A backend says as data which kernel state it wants: it turns the accepted leases of one address
//! family, and what is known of the node and its underlay, into [`Desired`]. The reconciler
//! compares that with the actual state and applies the difference, so a [`Backend`] needs neither
//! state nor an order. What the backends have to do in the kernel or in other processes, such as
//! WireGuard's keys and IPsec's daemon, is in their modules too.

mod backend;
pub mod carrier;
mod desired;
mod error;
pub mod host_gw;
pub mod ipip;
pub mod ipsec;
mod network;
pub mod offload;
mod programs;
mod registry;
mod tunnel;
pub mod udp;
pub mod underlay;
pub mod unmanaged;
pub mod vxlan;
mod way;
pub mod wireguard;

pub use self::{
    backend::{Backend, usable_mtu},
    desired::{Desired, PeerValue, device_key},
    error::BackendError,
    network::PodNetwork,
    programs::ProgramSet,
    registry::{carried_way, is_tunnel, of},
    tunnel::{OwnEnd, TunnelSpec, TunnelUnderlay, UdpSpec, WireguardSpec},
    unmanaged::Unmanaged,
    way::{CarriedExit, CarriedWay, EchoAddress, Node, PeerWay, Way},
};
