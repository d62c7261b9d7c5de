//! Mode `encap`: the programs carry the tunnel, over either family, and follow the host's routes,
//! policies and underlay. And mode `kernel`, on a kernel that may refuse the programs.

mod attach;
mod cleanup;
mod direct;
mod ecmp;
mod frames;
mod kernel_path;
mod policy;
mod refused;
mod restart;
mod switch;
mod traffic;
mod underlay;
