//! Mode `fast`: known flows bypass the host network stack, and the packets are those of mode
//! `kernel`.
//!
//! Suites that need the machine to themselves are programs of their own in this folder.

mod agents;
mod checksums;
mod conntrack;
mod devices;
mod dummy;
mod flows;
mod flowtable;
mod handshake;
mod host_gw;
mod hostile;
mod identity;
mod mixed;
mod netfilter;
mod order;
mod outside;
mod parity;
mod routed;
mod services;
mod talks;
