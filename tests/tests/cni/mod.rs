//! The CNI plugin: alone before a recording delegate, under a kubelet's runtime, and in a cluster.

mod cluster;
mod delegate;
mod kubelet;
mod standalone;
