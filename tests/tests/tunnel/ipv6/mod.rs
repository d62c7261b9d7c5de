//! The programs over IPv6, on a tunnel made by hand.

mod frames;
mod traffic;
mod tunnel;
