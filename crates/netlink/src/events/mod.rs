//! One stream of what changed in the kernel.
//!
//! One task reads both event sockets and sends typed events, in the order the kernel sent them per
//! socket. The queue is bounded: when the consumer is slow, events wait in the kernel, and when
//! that overflows, [`KernelEvent::Overflow`] takes their place. The consumer must then read
//! everything back.
//!
//! Changes the agent itself made to routes, neighbours, rules and nexthop objects are left out: it
//! knows them, and at thousands of peers their events cost as much as the changes. (Its FDB changes
//! are not left out: the kernel does not say who made them.)
//!
//! The kernel does not announce IPv4 routes that disappear with their device or its state
//! (`fib_disable_ip()` in [net/ipv4/fib_frontend.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/fib_frontend.c)). After a link went
//! down or is gone, its routes have to be read back too.

mod decode;
mod event;
mod nftables;
#[cfg(test)]
mod properties;

use std::io;

use netlink_packet_xfrm::{XFRMNLGRP_EXPIRE, XFRMNLGRP_POLICY};
use netlink_sys::{
    TokioSocket,
    protocols::{NETLINK_ROUTE, NETLINK_XFRM},
};
use rtnetlink::MulticastGroup;
use tokio::sync::mpsc;
use tracing::error;

pub use self::{event::KernelEvent, nftables::NftablesChanges};
use super::{
    NetlinkError,
    datagram::{DATAGRAM, Read, receive},
    open, socket, unless_unsupported,
};

/// Events between the task and the consumer.
const QUEUE: usize = 4096;

const ROUTE_GROUPS: [MulticastGroup; 10] = [
    MulticastGroup::Link,
    MulticastGroup::Neigh,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
    MulticastGroup::Nexthop,
    MulticastGroup::Tc,
];

/// The events of one namespace. Dropping it ends the task.
#[derive(Debug)]
pub struct KernelEvents {
    queue: mpsc::Receiver<KernelEvent>,
}

impl KernelEvents {
    /// The next event; `None` when the sockets failed for good and the caller has to connect again.
    pub async fn next(&mut self) -> Option<KernelEvent> {
        self.queue.recv().await
    }

    /// An event that is here already.
    pub fn try_next(&mut self) -> Option<KernelEvent> {
        self.queue.try_recv().ok()
    }

    /// Opens the event sockets. Changes by the sockets in `own` are ignored, see
    /// [`socket::ignore_changes_by`].
    pub(super) fn subscribe(own: &[&TokioSocket]) -> Result<Self, NetlinkError> {
        let groups = ROUTE_GROUPS.map(|group| group as u32);
        let route = open("the NETLINK_ROUTE event socket", || {
            let socket = socket::for_events(NETLINK_ROUTE, &groups)?;
            socket::ignore_changes_by(&socket, own)?;
            Ok(socket)
        })?;
        let xfrm = unless_unsupported(open("the NETLINK_XFRM event socket", || {
            socket::for_events(NETLINK_XFRM, &[XFRMNLGRP_POLICY, XFRMNLGRP_EXPIRE])
        }))?;
        let (sender, queue) = mpsc::channel(QUEUE);
        tokio::spawn(pump(route, xfrm, sender));
        Ok(Self { queue })
    }
}

/// Reads until a socket fails or the consumer is gone.
async fn pump(route: TokioSocket, xfrm: Option<TokioSocket>, sender: mpsc::Sender<KernelEvent>) {
    let mut route_buffer = Vec::with_capacity(DATAGRAM);
    let mut xfrm_buffer = Vec::with_capacity(DATAGRAM);
    loop {
        let events = tokio::select! {
            read = receive(&route, &mut route_buffer) => read.map(|read| match read {
                Read::Datagram => decode::route(&route_buffer),
                Read::Lost => vec![KernelEvent::Overflow],
            }),
            read = receive_if_any(xfrm.as_ref(), &mut xfrm_buffer) => read.map(|read| match read {
                Read::Datagram => decode::xfrm(&xfrm_buffer),
                Read::Lost => vec![KernelEvent::Overflow],
            }),
            () = sender.closed() => return,
        };
        match events {
            Ok(events) => {
                for event in events {
                    if sender.send(event).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => {
                error!(%error, "reading netlink events failed");
                return;
            }
        }
    }
}

async fn receive_if_any(socket: Option<&TokioSocket>, buffer: &mut Vec<u8>) -> io::Result<Read> {
    match socket {
        Some(socket) => receive(socket, buffer).await,
        None => std::future::pending().await,
    }
}
