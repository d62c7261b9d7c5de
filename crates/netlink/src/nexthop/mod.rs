//! Nexthop objects (kernel 5.3): next hops with a number, by which routes lead.
//!
//! Only an object that is a single gateway is made here. Groups, blackholes and what else there is
//! are read as what they are not. The objects go with their device, and when it goes down, and the
//! kernel does not say so (`nexthop_flush_dev()` in [net/ipv4/nexthop.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/nexthop.c)); with an object go the
//! routes by it, and of them the kernel does not speak either.

mod message;
mod object;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};

pub(super) use self::message::NexthopMessage;
pub use self::object::{Nexthop, NexthopId};
use super::{
    Netlink,
    error::{Fault, NetlinkError, Verb},
};

impl Netlink {
    /// All objects of the namespace, in order of their numbers; `None` on a kernel without them.
    pub async fn nexthops(&self) -> Result<Option<Vec<(NexthopId, Nexthop)>>, NetlinkError> {
        match self.nexthop.dump(NexthopMessage::dump()).await {
            Ok(dump) => {
                let entries = dump
                    .complete()
                    .map_err(|fault| fault.on(Verb::Read, "the nexthop objects"))?;
                Ok(Some(
                    entries.iter().filter_map(NexthopMessage::nexthop).collect(),
                ))
            }
            Err(fault) => {
                let error = fault.on(Verb::Read, "the nexthop objects");
                if error.is_unsupported() {
                    Ok(None)
                } else {
                    Err(error)
                }
            }
        }
    }

    /// One object; an error that [is gone](NetlinkError::is_gone) when there is none.
    pub async fn nexthop(&self, id: NexthopId) -> Result<Nexthop, NetlinkError> {
        let fetched = self.nexthop.fetch(NexthopMessage::get(id)).await;
        let found = fetched.and_then(|message| message.nexthop().ok_or(Fault::NoAnswer));
        found
            .map(|(_, nexthop)| nexthop)
            .map_err(|fault| fault.on(Verb::LookUp, id))
    }

    /// Makes an object; an error that [exists](NetlinkError::is_exists) when the number is taken,
    /// by whomever.
    pub async fn add_nexthop(&self, id: NexthopId, nexthop: &Nexthop) -> Result<(), NetlinkError> {
        let done = self
            .nexthop
            .command(NexthopMessage::new(id, nexthop), NLM_F_CREATE | NLM_F_EXCL)
            .await;
        done.map_err(|fault| fault.on(Verb::Create, id))
    }

    /// Makes an object, or the one with this number lead there. Routes by it follow at once.
    pub async fn replace_nexthop(
        &self,
        id: NexthopId,
        nexthop: &Nexthop,
    ) -> Result<(), NetlinkError> {
        let done = self
            .nexthop
            .command(
                NexthopMessage::new(id, nexthop),
                NLM_F_CREATE | NLM_F_REPLACE,
            )
            .await;
        done.map_err(|fault| fault.on(Verb::Replace, id))
    }

    /// Deletes an object, whosever it is, and with it the routes by it; [`NetlinkError::is_gone`]
    /// when there was none.
    pub async fn del_nexthop(&self, id: NexthopId) -> Result<(), NetlinkError> {
        self.nexthop
            .command(NexthopMessage::delete(id), 0)
            .await
            .map_err(|fault| fault.on(Verb::Delete, id))
    }
}
