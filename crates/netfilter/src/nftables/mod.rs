//! Reading nf_tables: chains, rules and sets, as a stream.
//!
//! A ruleset may have a hundred thousand rules, so an object is passed to the caller when its
//! message arrives, and not kept. Reads block: run them on a thread that may wait. The kernel
//! numbers its generations: as long as [`NftablesReader::generation`] gives the same number, rules
//! and sets are the same (`nft_net.base_seq` in net/netfilter/nf_tables_api.c, Linux 6.12:
//! <https://elixir.bootlin.com/linux/v6.12/source/net/netfilter/nf_tables_api.c>). Elements that
//! packets add to a set do not count.
//!
//! A read that a change overtakes is finished: an object may then be missing or be there twice. The
//! caller compares the generation before with that afterwards.
//!
//! Messages and attributes are those of include/uapi/linux/netfilter/nf_tables.h:
//! <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/netfilter/nf_tables.h>.

mod attributes;
mod transaction;

use std::{io, time::Duration};

use flannel_host::family::Family;
use flannel_netlink::{Fault, NetlinkError, Verb, attribute::attribute};
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::{
    errno::Errno,
    sys::{
        socket::{setsockopt, sockopt},
        time::{TimeVal, TimeValLike as _},
    },
};

pub use self::attributes::Attributes;
pub(crate) use self::transaction::Transaction;
use crate::nfnetlink::{FAMILY_HEADER, MESSAGE_HEADER, request};

/// `NFNL_SUBSYS_NFTABLES`, the upper byte of a message type.
pub(crate) const SUBSYSTEM: u16 = 10 << 8;
/// `NFT_MSG_GETCHAIN`, `_GETRULE`, `_GETSET`, `_GETSETELEM` and `_GETGEN`.
const GET_CHAIN: u16 = SUBSYSTEM + 4;
const GET_RULE: u16 = SUBSYSTEM + 7;
const GET_SET: u16 = SUBSYSTEM + 10;
const GET_ELEMENTS: u16 = SUBSYSTEM + 13;
const GET_GENERATION: u16 = SUBSYSTEM + 16;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The kernel's largest message of a dump is 32 KiB (`netlink_recvmsg()` in
/// [net/netlink/af_netlink.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netlink/af_netlink.c)).
const DATAGRAM: usize = 64 << 10;
/// The time limit of one message. The kernel holds its lock for a whole transaction of another
/// program.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// A table: its family (`NFPROTO_*`) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NftablesTable {
    /// `NFPROTO_*`.
    pub family: u8,
    /// The name.
    pub name: String,
}

impl NftablesTable {
    /// A table of an address family.
    pub fn new(family: Family, name: &str) -> Self {
        // NFPROTO_IPV4 and NFPROTO_IPV6
        let family = match family {
            Family::V4 => 2,
            Family::V6 => 10,
        };
        Self {
            family,
            name: name.to_owned(),
        }
    }
}

/// A chain that a hook calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseChain {
    /// The table of the chain.
    pub table: NftablesTable,
    /// The name.
    pub name: String,
    /// `NF_INET_*`, `NF_ARP_*` or `NF_NETDEV_*`, by the family of the table.
    pub hook: u32,
    /// `filter`, `nat` or `route`.
    pub kind: String,
    /// True if the policy is `NF_DROP`.
    pub drops: bool,
    /// The devices of a chain of devices.
    pub devices: Vec<String>,
}

/// A set or map without its elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NftablesSet {
    /// `NFT_SET_*`.
    pub flags: u32,
    /// `NFT_DATA_VERDICT` for a verdict map; zero for a set.
    pub data_type: u32,
    /// The timeout of its elements.
    pub timeout: Option<Duration>,
    /// The attributes of the answer, for its statements.
    pub attributes: Vec<u8>,
}

/// A socket for reading nf_tables in one network namespace.
#[derive(Debug)]
pub struct NftablesReader {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl NftablesReader {
    /// Opens a socket in the network namespace of the calling thread; `None` if the kernel has no
    /// nf_tables.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open() -> Result<Option<Self>, NetlinkError> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_NETFILTER)?;
            socket.bind_auto()?;
            let limit = TimeVal::seconds(i64::try_from(SILENCE.as_secs()).unwrap_or(i64::MAX));
            setsockopt(&socket, sockopt::ReceiveTimeout, &limit)?;
            Ok(socket)
        };
        match open() {
            Ok(socket) => {
                let mut reader = Self {
                    socket,
                    sequence: 0,
                    buffer: Vec::with_capacity(DATAGRAM),
                };
                let answer = reader.generation();
                // nfnetlink_rcv_msg() answers EINVAL for a subsystem that is not loaded
                // (net/netfilter/nfnetlink.c, Linux 6.1:
                // <https://elixir.bootlin.com/linux/v6.1/source/net/netfilter/nfnetlink.c>).
                let is_missing =
                    matches!(&answer, Err(error) if error.errno() == Some(Errno::EINVAL));
                if is_missing {
                    Ok(None)
                } else {
                    answer.map(|_| Some(reader))
                }
            }
            Err(error) if error.raw_os_error() == Some(Errno::EPROTONOSUPPORT as i32) => Ok(None),
            Err(error) => Err(Fault::Socket(error).on(Verb::Open, "a NETLINK_NETFILTER socket")),
        }
    }

    /// Returns the number of the present generation. Every transaction that changes something
    /// makes another one.
    ///
    /// # Errors
    /// The kernel refuses or does not answer.
    pub fn generation(&mut self) -> Result<u32, NetlinkError> {
        let mut found = None;
        self.ask(GET_GENERATION, 0, 0, &[], |_, attributes| {
            found = attributes.number32(1);
        })
        .and_then(|()| found.ok_or(Fault::NoAnswer))
        .map_err(|fault| fault.on(Verb::Read, "the generation of nf_tables"))
    }

    /// Passes the chains of all tables that hooks call.
    ///
    /// # Errors
    /// As [`NftablesReader::generation`].
    pub fn base_chains(&mut self, mut take: impl FnMut(BaseChain)) -> Result<(), NetlinkError> {
        self.ask(GET_CHAIN, NLM_F_DUMP, 0, &[], |family, attributes| {
            if let Some(chain) = base_chain(family, attributes) {
                take(chain);
            }
        })
        .map_err(|fault| fault.on(Verb::Read, "the chains of nf_tables"))
    }

    /// Returns true if a chain exists.
    ///
    /// # Errors
    /// As [`NftablesReader::generation`].
    pub fn has_chain(&mut self, table: &NftablesTable, chain: &str) -> Result<bool, NetlinkError> {
        let mut found = false;
        let of_chain = [(1, table.name.as_str()), (3, chain)];
        let read = self.ask(GET_CHAIN, 0, table.family, &of_chain, |_, _| found = true);
        unless_gone(read)
            .map_err(|fault| fault.on(Verb::Read, format!("chain {} {chain}", table.name)))?;
        Ok(found)
    }

    /// Passes handle and expressions of each rule of a chain, in their order. The kernel gives a
    /// handle once (`nf_tables_alloc_handle()` in [net/netfilter/nf_tables_api.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netfilter/nf_tables_api.c)): a rule
    /// that was replaced has another one. A chain that does not exist has no rules.
    ///
    /// # Errors
    /// As [`NftablesReader::generation`].
    pub fn rules(
        &mut self,
        table: &NftablesTable,
        chain: &str,
        mut take: impl FnMut(u64, &[Expression<'_>]),
    ) -> Result<(), NetlinkError> {
        let of_chain = [(1, table.name.as_str()), (2, chain)];
        let read = self.ask(
            GET_RULE,
            NLM_F_DUMP,
            table.family,
            &of_chain,
            |_, attributes| {
                // Kernels without the filter send all rules.
                if attributes.text(2).as_deref() == Some(chain)
                    && attributes.text(1).as_ref() == Some(&table.name)
                {
                    let handle = attributes.number(3).unwrap_or_default();
                    take(
                        handle,
                        &attributes.list(4).map(Expression::new).collect::<Vec<_>>(),
                    );
                }
            },
        );
        unless_gone(read).map_err(|fault| {
            fault.on(
                Verb::Read,
                format!("the rules of chain {} {chain}", table.name),
            )
        })
    }

    /// Returns a set; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`NftablesReader::generation`].
    pub fn set(
        &mut self,
        table: &NftablesTable,
        name: &str,
    ) -> Result<Option<NftablesSet>, NetlinkError> {
        let mut found = None;
        let of_set = [(1, table.name.as_str()), (2, name)];
        let read = self.ask_bytes(GET_SET, 0, table.family, &of_set, |_, bytes| {
            found = Some(set(bytes));
        });
        unless_gone(read)
            .map_err(|fault| fault.on(Verb::Read, format!("set {} {name}", table.name)))?;
        Ok(found)
    }

    /// Passes the attributes of each element of a set (`NFTA_SET_ELEM_*`).
    ///
    /// # Errors
    /// As [`NftablesReader::generation`].
    pub fn elements(
        &mut self,
        table: &NftablesTable,
        set: &str,
        mut take: impl FnMut(Attributes<'_>),
    ) -> Result<(), NetlinkError> {
        let of_set = [(1, table.name.as_str()), (2, set)];
        let read = self.ask(
            GET_ELEMENTS,
            NLM_F_DUMP,
            table.family,
            &of_set,
            |_, attributes| {
                attributes.list(3).for_each(&mut take);
            },
        );
        unless_gone(read)
            .map_err(|fault| fault.on(Verb::Read, format!("the elements of {} {set}", table.name)))
    }

    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        family: u8,
        names: &[(u16, &str)],
        mut take: impl FnMut(u8, Attributes<'_>),
    ) -> Result<(), Fault> {
        self.ask_bytes(kind, flags, family, names, |family, bytes| {
            take(family, Attributes::new(bytes));
        })
    }

    /// Sends a request and passes family and attributes of each message of its answer.
    fn ask_bytes(
        &mut self,
        kind: u16,
        flags: u16,
        family: u8,
        names: &[(u16, &str)],
        mut take: impl FnMut(u8, &[u8]),
    ) -> Result<(), Fault> {
        self.sequence = self.sequence.wrapping_add(1);
        // A dump ends with NLMSG_DONE, and another request with its acknowledgement.
        let acknowledged = if flags & NLM_F_DUMP == NLM_F_DUMP {
            0
        } else {
            NLM_F_ACK
        };
        let named =
            |(kind, name): &(u16, &str)| attribute(*kind, &[name.as_bytes(), &[0]].concat());
        let names: Vec<u8> = names.iter().flat_map(named).collect();
        let request = request(
            kind,
            NLM_F_REQUEST | acknowledged | flags,
            self.sequence,
            family,
            &names,
        );
        self.socket
            .send_to(&request, &SocketAddr::new(0, 0), 0)
            .map_err(Fault::Socket)?;
        loop {
            self.buffer.clear();
            match self.socket.recv_from(&mut self.buffer, 0) {
                Ok((_, sender)) if sender.port_number() != 0 => continue,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(Fault::TimedOut {
                        seconds: SILENCE.as_secs(),
                    });
                }
                Err(error) => return Err(Fault::Socket(error)),
            }
            if take_datagram(&self.buffer, self.sequence, &mut take)? {
                return Ok(());
            }
        }
    }
}

/// An expression of a rule: its name and attributes (`NFTA_EXPR_*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression<'a> {
    /// Such as `payload` or `cmp`.
    pub name: String,
    /// The attributes of this kind of expression.
    pub data: Attributes<'a>,
}

impl<'a> Expression<'a> {
    /// Reads an expression from its attributes.
    pub fn new(attributes: Attributes<'a>) -> Self {
        Self {
            name: attributes.text(1).unwrap_or_default(),
            data: attributes.nested(2).unwrap_or_default(),
        }
    }
}

/// A chain or set that went away is empty.
fn unless_gone(read: Result<(), Fault>) -> Result<(), Fault> {
    match read {
        Err(fault) if fault.errno() == Some(Errno::ENOENT) => Ok(()),
        other => other,
    }
}

/// Passes the messages of a datagram; true with the last one.
fn take_datagram(
    mut bytes: &[u8],
    sequence: u32,
    take: &mut impl FnMut(u8, &[u8]),
) -> Result<bool, Fault> {
    while bytes.len() >= MESSAGE_HEADER {
        let message = NetlinkBuffer::new(bytes);
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
        if length < MESSAGE_HEADER || length > bytes.len() {
            break;
        }
        let payload = &bytes[MESSAGE_HEADER..length];
        // What is left of an earlier answer is not for this request.
        if message.sequence_number() == sequence {
            match message.message_type() {
                ERROR | DONE => return ended(payload),
                _ if payload.len() >= FAMILY_HEADER => take(payload[0], &payload[FAMILY_HEADER..]),
                _ => {}
            }
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn ended(payload: &[u8]) -> Result<bool, Fault> {
    let code = payload
        .first_chunk()
        .map_or(0, |code| i32::from_ne_bytes(*code));
    match code {
        0.. => Ok(true),
        code => Err(Fault::Refused {
            errno: io::Error::from_raw_os_error(code.saturating_neg()),
            remark: None,
        }),
    }
}

fn base_chain(family: u8, attributes: Attributes<'_>) -> Option<BaseChain> {
    let hook = attributes.nested(4)?;
    let devices: Vec<String> = hook.names(4).collect();
    Some(BaseChain {
        table: NftablesTable {
            family,
            name: attributes.text(1)?,
        },
        name: attributes.text(3)?,
        hook: hook.number32(1)?,
        kind: attributes.text(7).unwrap_or_default(),
        drops: attributes.number(5) == Some(0),
        devices: if devices.is_empty() {
            hook.text(3).into_iter().collect()
        } else {
            devices
        },
    })
}

fn set(bytes: &[u8]) -> NftablesSet {
    let attributes = Attributes::new(bytes);
    NftablesSet {
        flags: attributes.number32(3).unwrap_or_default(),
        data_type: attributes.number32(6).unwrap_or_default(),
        timeout: attributes
            .number(11)
            .filter(|timeout| *timeout > 0)
            .map(Duration::from_millis),
        attributes: bytes.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
        let attributes = attributes.concat();
        let length =
            u32::try_from(MESSAGE_HEADER + FAMILY_HEADER + attributes.len()).expect("short");
        let (flags, sequence) = ([2, 0], 1_u32.to_ne_bytes());
        [
            &length.to_ne_bytes()[..],
            &kind.to_ne_bytes(),
            &flags,
            &sequence,
            &[0; 4],
            &[2, 0, 0, 0],
            &attributes,
        ]
        .concat()
    }

    #[test]
    fn fuzz_nftables_messages() {
        let text = |kind, text: &str| attribute(kind, format!("{text}\0").as_bytes());
        let hook = attribute(4, &[attribute(1, &[0, 0, 0, 2]), text(3, "eth0")].concat());
        let chain = message(
            GET_CHAIN,
            &[
                text(1, "filter"),
                text(3, "forward"),
                hook,
                text(7, "filter"),
            ],
        );
        let verdict = attribute(
            2,
            &attribute(
                2,
                &[attribute(1, &[0xff, 0xff, 0xff, 0xfd]), text(2, "KUBE")].concat(),
            ),
        );
        let expression = attribute(1, &[text(1, "immediate"), attribute(2, &verdict)].concat());
        let rule = message(
            GET_RULE,
            &[
                text(1, "filter"),
                text(2, "forward"),
                attribute(4, &expression),
            ],
        );
        let empty_set = message(
            GET_SET,
            &[
                text(1, "filter"),
                attribute(3, &[0, 0, 0, 1]),
                attribute(11, &[0; 8]),
            ],
        );
        let end = message(DONE, &[]);
        let seeds = [
            [chain, end.clone()].concat(),
            [rule, end.clone()].concat(),
            [empty_set, end].concat(),
        ];
        flannel_fuzz::run(
            "nftables_messages",
            &seeds.each_ref().map(Vec::as_slice),
            |datagram| {
                let each = &mut |family: u8, bytes: &[u8]| {
                    let attributes = Attributes::new(bytes);
                    base_chain(family, attributes);
                    set(bytes);
                    let expressions = attributes
                        .list(4)
                        .map(Expression::new)
                        .chain(attributes.expressions(17, 18));
                    expressions.for_each(|expression| {
                        let _names = expression.data.names(4).count();
                    });
                };
                drop(take_datagram(datagram, 1, each));
            },
        );
    }
}
