//! Announcements of changes in nftables: of a few tables, or of the whole ruleset.
//!
//! Changes are not decoded: the consumer reads the table. Another program may have sets and maps
//! with many changes (kube-proxy does), so each message is filtered by the name of its table, which
//! is the first attribute of all of them.

use std::fmt;

use netlink_packet_core::{NLA_TYPE_MASK, NetlinkBuffer, NlasIterator};
use netlink_sys::{TokioSocket, protocols::NETLINK_NETFILTER};
use tracing::error;

use crate::{
    NetlinkError,
    datagram::{DATAGRAM, Read, messages, receive},
    open, socket,
};

/// `NFNLGRP_NFTABLES`.
const GROUP: u32 = 7;
/// `NFNL_SUBSYS_NFTABLES`, the upper byte of a message type.
const SUBSYSTEM: u16 = 10;
/// `NFT_MSG_NEWGEN`, the last message of every transaction.
const NEW_GENERATION: u16 = SUBSYSTEM << 8 | 15;
/// Bytes of `struct nfgenmsg`, before the attributes.
const HEADER: usize = 4;
/// `NFTA_TABLE_NAME`, `NFTA_CHAIN_TABLE`, `NFTA_RULE_TABLE` and their like.
const TABLE: u16 = 1;

/// The changes in one network namespace.
pub struct NftablesChanges {
    socket: Option<TokioSocket>,
    of: Changes,
    buffer: Vec<u8>,
}

/// The changes that are reported.
#[derive(Debug)]
pub(super) enum Changes {
    /// All, once for each transaction.
    All,
    /// Those of tables with these names, of any family.
    Tables(Vec<&'static str>),
}

impl fmt::Debug for NftablesChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NftablesChanges")
            .field("of", &self.of)
            .finish_non_exhaustive()
    }
}

impl NftablesChanges {
    /// Subscribes to changes of tables with these names in the network namespace of the calling
    /// thread. Call inside a Tokio runtime.
    pub fn subscribe(tables: &[&'static str]) -> Result<Self, NetlinkError> {
        Self::open(Changes::Tables(tables.to_vec()))
    }

    /// Subscribes to every change, likewise.
    pub fn subscribe_all() -> Result<Self, NetlinkError> {
        Self::open(Changes::All)
    }

    fn open(of: Changes) -> Result<Self, NetlinkError> {
        let socket = open("the NETLINK_NETFILTER event socket", || {
            socket::for_events(NETLINK_NETFILTER, &[GROUP])
        })?;
        Ok(Self {
            socket: Some(socket),
            of,
            buffer: Vec::with_capacity(DATAGRAM),
        })
    }

    /// Waits for a change, or for one that may have been. Never returns once the socket failed for
    /// good. Cancel-safe.
    pub async fn next(&mut self) {
        loop {
            let Some(socket) = &self.socket else {
                return std::future::pending().await;
            };
            match receive(socket, &mut self.buffer).await {
                Ok(Read::Datagram) if !self.of.concern(&self.buffer) => {}
                Ok(Read::Datagram | Read::Lost) => return,
                Err(error) => {
                    error!(%error, "reading nftables events failed");
                    self.socket = None;
                }
            }
        }
    }
}

impl Changes {
    /// Returns true if a message in the datagram is about one of them, or cannot be read.
    pub(super) fn concern(&self, datagram: &[u8]) -> bool {
        messages(datagram).any(|message| {
            let Some(message) = message.map(NetlinkBuffer::new) else {
                return true;
            };
            match self {
                Self::All => message.message_type() == NEW_GENERATION,
                Self::Tables(tables) => {
                    let of_nftables = message.message_type() >> 8 == SUBSYSTEM;
                    of_nftables && tables.iter().any(|table| names(message.payload(), table))
                }
            }
        })
    }
}

fn names(payload: &[u8], table: &str) -> bool {
    let Some(Ok(attribute)) = payload
        .get(HEADER..)
        .and_then(|attributes| NlasIterator::new(attributes).next())
    else {
        return false;
    };
    let name = attribute.value();
    attribute.kind() & NLA_TYPE_MASK == TABLE
        && name.strip_suffix(&[0]).unwrap_or(name) == table.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of this type with one attribute.
    fn message(message_type: u16, kind: u16, value: &[u8]) -> Vec<u8> {
        let attribute = 4 + value.len();
        let mut bytes = vec![0; 16 + HEADER + attribute.next_multiple_of(4)];
        let length = u32::try_from(bytes.len()).expect("short");
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[4..6].copy_from_slice(&message_type.to_ne_bytes());
        bytes[20..22].copy_from_slice(&u16::try_from(attribute).expect("short").to_ne_bytes());
        bytes[22..24].copy_from_slice(&kind.to_ne_bytes());
        bytes[24..24 + value.len()].copy_from_slice(value);
        bytes
    }

    #[test]
    fn messages_are_distinguished_by_their_table() {
        const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;
        let ours = |bytes: &[u8]| Changes::Tables(vec!["flannel-ipv4"]).concern(bytes);
        assert!(ours(&message(NEW_RULE, TABLE, b"flannel-ipv4\0")));
        assert!(!ours(&message(NEW_RULE, TABLE, b"kube-proxy\0")));
        assert!(!ours(&message(NEW_RULE, TABLE, b"flannel-ipv4x\0")));
        assert!(!ours(&message(NEW_GENERATION, TABLE, &[0, 0, 0, 9])));
        assert!(
            !ours(&message(1 << 8, TABLE, b"flannel-ipv4\0")),
            "another subsystem"
        );
        let both = [
            message(NEW_RULE, TABLE, b"kube-proxy\0"),
            message(NEW_RULE, TABLE, b"flannel-ipv4\0"),
        ]
        .concat();
        assert!(ours(&both));
        assert!(ours(&both[..both.len() - 1]), "cut off");
    }

    #[test]
    fn a_transaction_is_recognised_by_its_end() {
        assert!(Changes::All.concern(&message(NEW_GENERATION, TABLE, &[0, 0, 0, 9])));
        assert!(!Changes::All.concern(&message(SUBSYSTEM << 8 | 6, TABLE, b"kube-proxy\0")));
        assert!(
            Changes::All.concern(&message(NEW_GENERATION, TABLE, &[0, 0, 0, 9])[1..]),
            "cut off"
        );
    }
}
