//! The datapath of flannel's backend `udp`: a process between a TUN device and a UDP socket.
//!
//! A packet that the kernel routes to the device is the payload of one UDP datagram to the node
//! that has its destination, without an additional header: stock flannel's format. The process is
//! separate from the agent, so packets flow while the agent is stopped. The agent talks to it on a
//! control socket ([`Request`]): it reads its state and changes its peers by difference.
//!
//! Throughput comes from few system calls: the kernel hands over TCP super-packets, which are cut
//! here and sent by one call (`UDP_SEGMENT`); datagrams of a peer arrive together (`UDP_GRO`, see
//! [udp(7)](https://man7.org/linux/man-pages/man7/udp.7.html)), and TCP segments among them go to
//! the kernel as one packet again.
//!
//! Invariants: a packet is forwarded only if its IPv4 header is undamaged and its time to live
//! lasts, and from the underlay only if its sender is a peer; a successor takes over device and
//! socket with all that is queued in them, so an upgrade loses no packet; the process ends when its
//! device is gone.

mod batch;
mod build;
mod client;
mod control;
mod counts;
mod datapath;
mod error;
mod inbound;
mod limit;
mod options;
mod outbound;
mod packet;
mod protocol;
mod readiness;
mod socket;
mod table;
mod takeover;
mod tun;
mod tunnel;

pub use self::{
    build::build,
    client::ask,
    counts::Counts,
    error::TunnelError,
    options::TunnelOptions,
    protocol::{Peers, Reply, Request, State},
    tun::make_persistent,
    tunnel::run,
};
