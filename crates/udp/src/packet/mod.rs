//! Packets as bytes: headers, checksums, segmentation. Pure.

pub(crate) mod checksum;
pub(crate) mod icmp;
pub(crate) mod ipv4;
pub(crate) mod merge;
pub(crate) mod split;
pub(crate) mod vnet;

#[cfg(test)]
mod fuzz;
