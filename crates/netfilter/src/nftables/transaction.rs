//! Changes of nf_tables that apply together or not at all.

use std::io;

use flannel_netlink::{Fault, datagram::messages};
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkBuffer};
use netlink_sys::{Socket, SocketAddr};

use super::{DATAGRAM, ERROR, SILENCE, SUBSYSTEM, ended};
use crate::nfnetlink::request;

/// `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END`.
const BEGIN: u16 = 16;
const END: u16 = 17;
/// The place of `nfgenmsg.res_id` in a message. It names the subsystem of a batch.
const RESOURCE: usize = 18;

/// The messages of a transaction.
#[derive(Debug)]
pub(crate) struct Transaction {
    bytes: Vec<u8>,
    /// The number of the last message; zero for the first boundary.
    sequence: u32,
}

impl Transaction {
    /// An empty transaction.
    pub(crate) fn new() -> Self {
        Self {
            bytes: boundary(BEGIN),
            sequence: 0,
        }
    }

    /// Adds a message (`NFT_MSG_*`) about an object in a table of this family.
    pub(crate) fn add(&mut self, message: u16, flags: u16, family: u8, attributes: &[u8]) {
        self.sequence += 1;
        let flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        self.bytes.extend(request(
            SUBSYSTEM + message,
            flags,
            self.sequence,
            family,
            attributes,
        ));
    }

    /// Has the kernel apply it. Blocks. The kernel answers each message in their order, and a
    /// refusal of the whole before them (`nfnetlink_rcv_batch()` in [net/netfilter/nfnetlink.c,
    /// Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netfilter/nfnetlink.c)).
    pub(crate) fn commit(mut self, socket: &Socket) -> Result<(), Fault> {
        self.bytes.extend(boundary(END));
        socket
            .send_to(&self.bytes, &SocketAddr::new(0, 0), 0)
            .map_err(Fault::Socket)?;
        let mut datagram = Vec::with_capacity(DATAGRAM);
        while !is_last_answer(&datagram, self.sequence)? {
            datagram.clear();
            match socket.recv_from(&mut datagram, 0) {
                Ok((_, sender)) if sender.port_number() == 0 => {}
                Ok(_) => datagram.clear(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(Fault::TimedOut {
                        seconds: SILENCE.as_secs(),
                    });
                }
                Err(error) => return Err(Fault::Socket(error)),
            }
        }
        Ok(())
    }
}

fn boundary(kind: u16) -> Vec<u8> {
    let mut message = request(kind, NLM_F_REQUEST, 0, 0, &[]);
    message[RESOURCE..RESOURCE + 2].copy_from_slice(&(SUBSYSTEM >> 8).to_be_bytes());
    message
}

/// True for the answer to the message with this number. Any refusal is an error.
fn is_last_answer(datagram: &[u8], last: u32) -> Result<bool, Fault> {
    for message in messages(datagram).flatten().map(NetlinkBuffer::new) {
        if message.message_type() == ERROR {
            ended(message.payload())?;
            if message.sequence_number() == last {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(sequence: u32, code: i32) -> Vec<u8> {
        let header = [
            &36_u32.to_ne_bytes()[..],
            &ERROR.to_ne_bytes(),
            &[0; 2],
            &sequence.to_ne_bytes(),
            &[0; 4],
        ];
        [&header.concat()[..], &code.to_ne_bytes(), &[0; 16]].concat()
    }

    #[test]
    fn the_last_answer_ends_a_transaction_and_any_refusal_does() {
        assert!(!is_last_answer(&answer(1, 0), 2).expect("no refusal"));
        assert!(is_last_answer(&[answer(1, 0), answer(2, 0)].concat(), 2).expect("no refusal"));
        for refusal in [answer(0, -1), answer(1, -1)] {
            assert!(is_last_answer(&refusal, 2).is_err());
        }
    }

    #[test]
    fn boundaries_name_the_subsystem_in_network_byte_order() {
        assert_eq!(boundary(BEGIN)[16..20], [0, 0, 0, 10]);
    }
}
