//! The programs over IPv6, on a tunnel made by hand.

mod frames;
mod packets;
mod traffic;
mod tunnel;
