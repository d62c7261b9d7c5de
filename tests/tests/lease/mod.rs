//! Leases end to end: who gets which subnet, what becomes of a lost lease, and what the kernel
//! holds for the peers.

mod clocks;
mod commands;
mod drift;
mod identity;
mod lapsed;
mod lost_subnet;
mod own;
mod peers;
mod shape;
mod stock_node;
mod subnets;
