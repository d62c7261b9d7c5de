//! The promise of a backend: what it is asked, and what it is given to answer.
//!
//! A backend says as data which kernel state it wants: it turns the accepted leases of one address
//! family, and what is known of the node and its underlay, into [`Desired`]. The reconciler
//! compares that with the actual state and applies the difference, so a [`Backend`] needs neither
//! state nor an order. A backend with a tunnel names its [`TunnelDevice`]; where more than a link
//! is behind that device, such as the peers of WireGuard, [`TunnelPeers`] keeps it.
//!
//! The backends themselves are in `flannel_backends`. A crate that has only this one, such as the
//! reconciler, cannot depend on which backend it serves.

mod backend;
mod carrier;
mod desired;
mod device;
mod device_error;
mod error;
mod marks;
mod network;
pub mod offload;
mod programs;
mod tunnel;
mod tunnel_peers;
pub mod underlay;
mod way;

pub use self::{
    backend::{Backend, usable_mtu},
    carrier::{Carrier, CarrierState, CarryingDevice, MissingPart},
    desired::{
        Desired, PeerValue, TunnelPeer, device_key, direct_entry, direct_route, network_config,
        routed_entry,
    },
    device::{Device, bring_up, made_link, vanished},
    device_error::{DeviceError, DeviceFault},
    error::{BackendError, IPV6_MIN_MTU, require_own_address},
    marks::Marks,
    network::PodNetwork,
    programs::ProgramSet,
    tunnel::{OwnEnd, TunnelDevice, TunnelUnderlay},
    tunnel_peers::{TunnelFacts, TunnelPeers},
    way::{CarriedExit, CarriedWay, EchoAddress, Node, PeerWay, Way},
};
