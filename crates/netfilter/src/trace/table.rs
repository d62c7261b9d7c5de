//! The table that begins traces. It is owned by a socket, so the kernel removes it when that is
//! closed, also at the end of a killed process (`nft_rcv_nl_event()` in
//! [net/netfilter/nf_tables_api.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netfilter/nf_tables_api.c)).

use std::io;

use flannel_netlink::{Fault, NetlinkError, Verb, attribute::attribute};
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};
use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};
use nix::sys::{
    socket::{setsockopt, sockopt},
    time::{TimeVal, TimeValLike as _},
};

use super::{
    expression::{counting_and_tracing, matching, nested, number},
    flow::{TraceDirection, TracedFlow, TracedTuple},
};
use crate::{
    NftablesReader, NftablesTable,
    nftables::{SILENCE, Transaction},
};

/// The beginning of the names of such tables. The number of the socket follows.
const PREFIX: &str = "flannel-trace-";
/// `NFPROTO_INET`: packets of both families.
const INET: u8 = 1;
/// `NFT_MSG_NEWTABLE`, `NFT_MSG_NEWCHAIN` and `NFT_MSG_NEWRULE`.
const NEW_TABLE: u16 = 0;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
/// `NFT_TABLE_F_OWNER`.
const OWNED: u32 = 2;
/// `NF_INET_PRE_ROUTING`, `NF_INET_LOCAL_IN`, `NF_INET_LOCAL_OUT` and `NF_INET_POST_ROUTING`.
const PREROUTING: u32 = 0;
const INPUT: u32 = 1;
const OUTPUT: u32 = 3;
const POSTROUTING: u32 = 4;
/// The priority behind the assembly of fragments (`NF_IP_PRI_CONNTRACK_DEFRAG`) and in front of the
/// rules of the tables `raw`.
const FIRST: i32 = -399;
/// The priority behind the rules of others.
const LAST: i32 = i32::MAX - 1;

/// The chains that begin the trace of a packet.
const BEGINNINGS: [(&str, TraceDirection, u32); 4] = [
    ("original-prerouting", TraceDirection::Original, PREROUTING),
    ("original-output", TraceDirection::Original, OUTPUT),
    ("reply-prerouting", TraceDirection::Reply, PREROUTING),
    ("reply-output", TraceDirection::Reply, OUTPUT),
];
/// The chains, without rules, that traced packets pass last.
const ENDS: [(&str, u32); 2] = [("input", INPUT), ("postrouting", POSTROUTING)];

/// Returns true for the name of a table that begins a trace. Such a table judges no packet.
pub fn is_trace_table(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The place of a chain of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnChain {
    /// The trace of a packet of this direction begins.
    Begins(TraceDirection),
    /// The packet has passed the rules.
    Ends,
}

impl OwnChain {
    /// The place of the chain of this name.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let begins = BEGINNINGS.iter().find(|(chain, ..)| *chain == name);
        let ends = || {
            ENDS.iter()
                .any(|(chain, _)| *chain == name)
                .then_some(Self::Ends)
        };
        begins
            .map(|(_, direction, _)| Self::Begins(*direction))
            .or_else(ends)
    }
}

/// The table, while it exists.
pub(super) struct TraceTable {
    /// The owner.
    _socket: Socket,
    pub(super) table: NftablesTable,
}

impl TraceTable {
    /// Makes the table for a flow. Blocks.
    pub(super) fn create(flow: &TracedFlow) -> Result<Self, NetlinkError> {
        let (socket, port) = open()
            .map_err(|error| Fault::Socket(error).on(Verb::Open, "a NETLINK_NETFILTER socket"))?;
        let name = format!("{PREFIX}{port}");
        let created = transaction(&name, flow).commit(&socket);
        created.map_err(|fault| fault.on(Verb::Create, format!("table inet {name}")))?;
        Ok(Self {
            _socket: socket,
            table: NftablesTable { family: INET, name },
        })
    }

    /// The packets that the rules of a direction matched. Blocks.
    pub(super) fn matched(
        &self,
        reader: &mut NftablesReader,
        wanted: TraceDirection,
    ) -> Result<u64, NetlinkError> {
        let mut packets = 0;
        for (chain, ..) in BEGINNINGS
            .iter()
            .filter(|(_, direction, _)| *direction == wanted)
        {
            reader.rules(&self.table, chain, |_, expressions| {
                let counter = expressions
                    .iter()
                    .find(|expression| expression.name == "counter");
                packets += counter
                    .and_then(|counter| counter.data.number(2))
                    .unwrap_or_default();
            })?;
        }
        Ok(packets)
    }
}

fn open() -> io::Result<(Socket, u32)> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    let port = socket.bind_auto()?.port_number();
    let limit = TimeVal::seconds(i64::try_from(SILENCE.as_secs()).unwrap_or(i64::MAX));
    setsockopt(&socket, sockopt::ReceiveTimeout, &limit)?;
    Ok((socket, port))
}

fn transaction(table: &str, flow: &TracedFlow) -> Transaction {
    let mut transaction = Transaction::new();
    let table = text(1, table);
    transaction.add(
        NEW_TABLE,
        NLM_F_CREATE | NLM_F_EXCL,
        INET,
        &[table.clone(), number(2, OWNED)].concat(),
    );
    for (name, direction, hook) in BEGINNINGS {
        transaction.add(
            NEW_CHAIN,
            NLM_F_CREATE,
            INET,
            &chain(&table, name, hook, FIRST),
        );
        let tuples = match direction {
            TraceDirection::Original => std::slice::from_ref(&flow.original),
            TraceDirection::Reply => &flow.replies,
        };
        for tuple in tuples {
            let rule = rule(&table, name, flow.protocol, tuple);
            transaction.add(NEW_RULE, NLM_F_CREATE | NLM_F_APPEND, INET, &rule);
        }
    }
    for (name, hook) in ENDS {
        transaction.add(
            NEW_CHAIN,
            NLM_F_CREATE,
            INET,
            &chain(&table, name, hook, LAST),
        );
    }
    transaction
}

/// A chain that accepts.
fn chain(table: &[u8], name: &str, hook: u32, priority: i32) -> Vec<u8> {
    let hook = [number(1, hook), attribute(2, &priority.to_be_bytes())].concat();
    [table, &text(3, name), &nested(4, &hook), &text(7, "filter")].concat()
}

fn rule(table: &[u8], chain: &str, protocol: u8, tuple: &TracedTuple) -> Vec<u8> {
    let expressions = [matching(protocol, tuple), counting_and_tracing()].concat();
    [table, &text(2, chain), &nested(4, &expressions)].concat()
}

/// An attribute with a text that a NUL ends.
fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}
