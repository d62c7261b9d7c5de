//! Routes of the main table: reading, replacing, deleting.
//!
//! Routes in a table are distinguished by destination, table and metric. Routes that also select by
//! TOS or (IPv6) by source prefix are left out of every answer: flannel makes none, and the key
//! could not distinguish them.

mod entry;
mod gateway;
mod hop;
mod message;
pub mod protocol;

use flannel_host::family::Family;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
pub use netlink_packet_route::route::{RouteScope, RouteType};
use netlink_packet_route::{
    RouteNetlinkMessage,
    route::{RouteAttribute, RouteMessage},
};
use nix::errno::Errno;

use self::message::to_message;
pub use self::{
    entry::{MAIN_TABLE, Route, RouteKey},
    hop::RouteHop,
};
pub(super) use self::{
    gateway::{ip, via},
    message::from_message,
};
use super::{
    Netlink,
    error::{NetlinkError, Verb},
};
use crate::family::to_kernel;

impl Netlink {
    /// The routes of the main table, in kernel order. IPv6 keys may repeat: the prefix of every
    /// link's link-local addresses is the same.
    pub async fn routes(&self, family: Family) -> Result<Vec<(RouteKey, Route)>, NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = to_kernel(family);
        message.attributes.push(RouteAttribute::Table(MAIN_TABLE));
        let dump = match self
            .route
            .dump(RouteNetlinkMessage::GetRoute(message))
            .await
        {
            // A table without a route yet does not exist.
            Err(fault) if fault.errno() == Some(Errno::ENOENT) => return Ok(Vec::new()),
            other => {
                other.map_err(|fault| fault.on(Verb::Read, format_args!("the {family} routes")))?
            }
        };
        let entries = dump.readable();
        Ok(entries
            .iter()
            .filter_map(route_of)
            .filter(|(key, _)| key.table == MAIN_TABLE)
            .collect())
    }

    /// Adds a route or changes the one with the same key.
    ///
    /// IPv6 refuses an onlink gateway that is routed to a different device. A peer's gateway lies
    /// in the very subnet that is routed, so a route that sends the subnet elsewhere could not be
    /// replaced. A temporary route of the gateway by its device then makes the replacement
    /// possible, and the destination has a route at every moment.
    pub async fn replace_route(&self, key: &RouteKey, route: &Route) -> Result<(), NetlinkError> {
        match (self.write_route(key, route).await, route.gateway) {
            (Err(error), Some(gateway))
                if error.errno() == Some(Errno::EINVAL) && route.onlink && gateway.is_ipv6() =>
            {
                let link = (
                    RouteKey::main(gateway.into()),
                    Route {
                        gateway: None,
                        onlink: false,
                        ..route.clone()
                    },
                );
                self.write_route(&link.0, &link.1).await?;
                let replaced = self.write_route(key, route).await;
                self.del_route(&link.0, &link.1).await?;
                replaced
            }
            (other, _) => other,
        }
    }

    async fn write_route(&self, key: &RouteKey, route: &Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewRoute(to_message(key, route));
        let done = self
            .route
            .command(message, NLM_F_CREATE | NLM_F_REPLACE)
            .await;
        done.map_err(|fault| fault.on(Verb::Replace, key))
    }

    /// Adds an IPv4 route before those with the same key, which stay: the first of them counts.
    ///
    /// Without `NLM_F_APPEND` and `NLM_F_REPLACE` the kernel inserts before the first such route,
    /// and refuses only an identical one (`fib_table_insert()` in [net/ipv4/fib_trie.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/fib_trie.c)).
    pub async fn prepend_route(&self, key: &RouteKey, route: &Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewRoute(to_message(key, route));
        match self
            .route
            .command(message, NLM_F_CREATE)
            .await
            .map_err(|fault| fault.on(Verb::Create, key))
        {
            Err(there) if there.is_exists() => Ok(()),
            other => other,
        }
    }

    /// Deletes exactly this route: one with the same key that leads elsewhere, or that another
    /// program made, stays. [`NetlinkError::is_gone`] when there is none such.
    pub async fn del_route(&self, key: &RouteKey, route: &Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::DelRoute(to_message(key, route));
        self.route
            .command(message, 0)
            .await
            .map_err(|fault| fault.on(Verb::Delete, key))
    }
}

fn route_of(message: &RouteNetlinkMessage) -> Option<(RouteKey, Route)> {
    match message {
        RouteNetlinkMessage::NewRoute(route) => from_message(route),
        _ => None,
    }
}
