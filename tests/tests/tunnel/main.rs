//! Mode `encap`: the programs carry the tunnel, over either family, and follow the host's routes,
//! policies and underlay.

mod attach;
mod cleanup;
mod direct;
mod ecmp;
mod frames;
mod policy;
mod restart;
mod switch;
mod traffic;
mod underlay;
